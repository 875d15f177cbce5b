"""A frame that is edited as the chunk it came in is what it would be among others."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from billing.usage.event import TokenUsage
from gateway.dataplane.stream_editor import StreamEditor
from gateway.dataplane.stream_usage import StreamUsage
from tests.factories.engine_replies import chunk, piece, usage
from tests.factories.sse_streams import chunks, edit_in_pieces, events_of, total_chunks, write

_CHUNK = re.compile(rb"([1-9a-f][0-9a-f]*)\r\n(.*)\r\n", re.DOTALL)
_counts = st.builds(
    usage,
    st.integers(0, 9_999),
    st.integers(0, 9_999),
    prompt_tokens_details=st.none() | st.just({"cached_tokens": 4}),
) | st.builds(usage, st.integers(0, 9_999), st.integers(0, 9_999))


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    style = {"is_spaced": draw(st.booleans()), "is_ascii": draw(st.booleans())}
    return b"data: " + write(draw(chunks() | total_chunks()), **style) + b"\n\n"


_usual = st.builds(
    chunk,
    st.text(max_size=20) | st.sampled_from(['"usage":{', ',"usage":{}}', '"error"', "}}", "\n\n"]),
    finish=st.none() | st.just("stop"),
    counts=st.none() | _counts,
)
_odd = st.sampled_from(
    [
        b'data: {"id":"1","choices":[{"index":0}],"x":{"usage":{"a":1}}}\n\n',
        b'data: {"id":"1","choices":[{"index":0}],"x":[{"y":1,"usage":{"a":1}}]}\n\n',
        b'data: {"id":"1","choices":[{"index":0,"usage":{"a":1}}]}\n\n',
        b'data: {"id":"1","choices":[{"index":0}],"usage":{"a":1},"usage":{"prompt_tokens":2}}\n\n',
        b'data: {"id":"1","choices":[{"index":0}],"usage":{"a":"}}"}}\n\n',
        b'data: {"id":"1","choices":[{"index":0}],"usage":{}}\n\n',
        b'data: {"id":"1","choices":[{"index":0}], "usage":{"completion_tokens":3}}\n\n',
        b'data: {"id":"1","choices":[{"index":0}],"usage" : {"completion_tokens":3}}\n\n',
        b'data: {"id":"1","usage":{"completion_tokens":3},"choices":[{"index":0}]}\n\n',
        b'data: {"id":"1","choices":[{"index":0}],"usage":{"completion_tokens":3}}}\n\n',
        b'data: {"id":"1","choices":[],"usage":{"prompt_tokens":2,"completion_tokens":3}}\n\n',
        b'data: {"id":"1","choices":[{"index":0}],"error":{"message":"x"}}\n\n',
        b'data: {"choices":[{"index":0}]}\n\n',
        b"data: nothing\n\n",
        b": comment\n\n",
    ]
)


def edit(
    parts: list[bytes], *, sees_total: bool, sees_all: bool, by_chunk: bool
) -> tuple[list[bytes], TokenUsage, StreamEditor]:
    """Feed frame by frame; return what the client gets of each, the counts and the editor."""
    editor = StreamEditor(
        usage=StreamUsage(choices_per_prompt=1, prompts=1),
        rename=None,
        hides_total=not sees_total,
        hides_continuous=not sees_all,
    )
    out = []
    for part in parts:
        if editor.error is not None:
            break
        chunk_out = b""
        if by_chunk and editor.passes_chunks:
            chunk_out = editor.edit_chunk(piece(part))
        if chunk_out:
            match = _CHUNK.fullmatch(chunk_out)
            assert match is not None, chunk_out
            assert int(match[1], 16) == len(match[2])
            out.append(match[2])
        else:
            out.append(editor.edit(part))
    return out, editor.usage.total(), editor


@given(
    st.booleans(),
    st.lists(_usual | frames() | _odd, max_size=12),
    st.booleans(),
    st.booleans(),
)
@example(
    is_counted=True, parts=[chunk("x", counts=usage(1, 2))] * 3, sees_total=False, sees_all=False
)
def test_chunk_by_chunk_equals_frame_by_frame(
    is_counted: bool, parts: list[bytes], sees_total: bool, sees_all: bool
) -> None:
    first = chunk("w", counts=usage(10, 1) if is_counted else None)
    sees: dict[str, Any] = {"sees_total": sees_total or sees_all, "sees_all": sees_all}
    by_chunk, counts, editor = edit([first, *parts], **sees, by_chunk=True)
    by_frame, wanted_counts, wanted = edit([first, *parts], **sees, by_chunk=False)
    assert by_chunk == by_frame
    assert counts == wanted_counts
    assert editor.usage.uncounted_chunks == wanted.usage.uncounted_chunks
    assert (editor.is_finished, editor.is_empty, editor.lacks_total, editor.error) == (
        wanted.is_finished,
        wanted.is_empty,
        wanted.lacks_total,
        wanted.error,
    )
    assert editor.latest_frame == wanted.latest_frame


@pytest.mark.parametrize("is_counted", [False, True])
def test_the_usual_chunk_is_edited_as_one(is_counted: bool) -> None:
    """Else all of the above could hold because no chunk ever is."""
    parts = [
        chunk(f"w{number}", counts=usage(10, number) if is_counted else None)
        for number in range(20)
    ]
    _, _, editor = edit(parts[:1], sees_total=False, sees_all=False, by_chunk=False)
    for part in parts[1:]:
        assert editor.edit_chunk(piece(part))
    out, counts, _ = edit(parts, sees_total=False, sees_all=False, by_chunk=True)
    assert [event for part in out for event in events_of(part)] == [
        {name: member for name, member in json.loads(part[6:]).items() if name != "usage"}
        for part in parts
    ]
    assert counts == edit_in_pieces(parts)[1]
