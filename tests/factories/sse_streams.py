"""Streams for property tests: JSON chunks, events around them, and bytes cut anywhere."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import strategies as st

from backends.sse import FrameAligner
from billing.usage.event import TokenUsage
from gateway.dataplane.model_rename import ModelRename
from gateway.dataplane.stream_editor import StreamEditor
from gateway.dataplane.stream_usage import StreamUsage

ENGINE_MODEL = "org/modèle"
ROUTE = 'my "route"'

texts = st.text(max_size=12) | st.sampled_from(
    [
        "你好🙂",
        '"usage":{"a":1}',
        '"model":"org/modèle"',
        "data: x\n\ndata: y",
        "[DONE]",
        "\r\n",
        "}{",
        '"error"',
    ]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
counts = st.integers(0, 10**12)
usages = st.builds(
    lambda prompt, completion, cached, extra: {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": cached,
        "completion_tokens_details": extra,
    },
    counts,
    counts,
    st.none() | st.builds(lambda n: {"cached_tokens": n, "more": {"a": n}}, counts),
    st.none() | st.builds(lambda n: {"reasoning_tokens": n}, counts),
)
deltas = st.dictionaries(
    st.sampled_from(["content", "reasoning", "role", "tool_calls", "usage", "x"]),
    values,
    max_size=3,
)


@st.composite
def chunks(draw: st.DrawFn, *, has_usage: bool | None = None) -> dict[str, Any]:
    """A chat chunk with members in any order, ``id`` first as engines write it."""
    finish = draw(st.none() | st.sampled_from(["stop", "length", "tool_calls"]))
    members: dict[str, Any] = {
        "object": "chat.completion.chunk",
        "model": draw(st.sampled_from([ENGINE_MODEL, "other"])),
        "choices": [{"index": 0, "delta": draw(deltas), "finish_reason": finish}],
    }
    if has_usage or (has_usage is None and draw(st.booleans())):
        members["usage"] = draw(usages)
    if draw(st.booleans()):
        members["x_vendor"] = draw(values)
    names = draw(st.permutations(list(members)))
    return {"id": draw(texts), **{name: members[name] for name in names}}


@st.composite
def total_chunks(draw: st.DrawFn) -> dict[str, Any]:
    choices: dict[str, Any] = draw(st.sampled_from([{"choices": []}, {"choices": None}, {}]))
    return {"id": "1", "model": ENGINE_MODEL, **choices, "usage": draw(usages)}


def write(value: Any, *, is_spaced: bool, is_ascii: bool) -> bytes:
    separators = (", ", ": ") if is_spaced else (",", ":")
    return json.dumps(value, ensure_ascii=is_ascii, separators=separators).encode()


comments = st.sampled_from([b": ping\n\n", b":\n\n", b":\n", b": a\n: b\n\n", b"\n", b"id: 1\n\n"])


def edit_in_pieces(
    pieces: list[bytes],
    *,
    sees_total: bool = False,
    sees_continuous: bool = False,
    renames: bool = True,
) -> tuple[bytes, TokenUsage, StreamEditor]:
    """Feed a stream piece by piece; return what the client gets, the counts and the editor."""
    aligner = FrameAligner(64 * 1024 * 1024)
    editor = StreamEditor(
        usage=StreamUsage(choices_per_prompt=1, prompts=1),
        rename=ModelRename(ENGINE_MODEL, ROUTE) if renames else None,
        hides_total=not sees_total,
        hides_continuous=not sees_continuous,
    )
    out = b""
    for part in pieces:
        if (frames := aligner.feed(part)) and not editor.is_done and editor.error is None:
            out += editor.edit(frames)
    if (rest := aligner.finish()) and not editor.is_done and editor.error is None:
        out += editor.edit(rest)
    return out, editor.usage.total(), editor


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(marks)]


def events_of(data: bytes) -> list[Any]:
    """Return the events of a stream as a client reads them: JSON values and ``"[DONE]"``."""
    found: list[Any] = []
    for frame in data.split(b"\n\n"):
        lines = [
            line[5:].removeprefix(b" ") for line in frame.split(b"\n") if line.startswith(b"data:")
        ]
        if lines:
            text = b"\n".join(lines)
            found.append("[DONE]" if text == b"[DONE]" else json.loads(text))
    return found
