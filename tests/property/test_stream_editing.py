"""Streams cut at any byte, in any spelling: the same for the client, the same counts, nothing lost."""

from __future__ import annotations

import copy
import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends.errors import ReplyTooLargeError
from backends.sse import FrameAligner, read_events
from billing.usage.event import TokenUsage
from gateway.dataplane.plain_frames import DONE_FRAME
from gateway.dataplane.stream_editor import StreamEditor
from gateway.dataplane.stream_usage import StreamUsage
from tests.factories.engine_replies import answer, chunk, total_chunk, usage
from tests.factories.sse_streams import (
    ENGINE_MODEL,
    ROUTE,
    chunks,
    comments,
    cut,
    edit_in_pieces,
    events_of,
    total_chunks,
    write,
)

CAPTURES = Path(__file__).parents[3] / "shared" / "captures" / "vllm"
places = st.lists(st.integers(0, 1 << 20), max_size=40)
line_ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
styles = st.fixed_dictionaries({"is_spaced": st.booleans(), "is_ascii": st.booleans()})


@st.composite
def streams(draw: st.DrawFn, *, is_plain: bool = False) -> tuple[bytes, list[dict[str, Any]]]:
    """A stream's bytes, and the chunks in it."""
    style = draw(styles)
    is_continuous = draw(st.booleans())
    sent = draw(st.lists(chunks(has_usage=is_continuous), max_size=5))
    if draw(st.booleans()):
        sent.append(draw(total_chunks()))
    end = b"\n" if is_plain else draw(line_ends)
    data = b""
    for each in sent:
        if not is_plain:
            data += draw(st.just(b"") | comments)
        prefix = b"data: " if is_plain else draw(st.sampled_from([b"data: ", b"data:"]))
        lines = [write(each, **style)]
        if not is_plain and draw(st.booleans()):
            lines = json.dumps(each, indent=1).encode().split(b"\n")
        data += b"".join(prefix + line + b"\n" for line in lines) + b"\n"
    if draw(st.booleans()):
        data += b"data: [DONE]\n\n"
    return data.replace(b"\n", end), sent


def for_client(sent: dict[str, Any], *, sees_total: bool, sees_continuous: bool) -> Any:
    """Return what the client should get of one chunk; None: nothing."""
    got = copy.deepcopy(sent)
    if got.get("model") == ENGINE_MODEL:
        got["model"] = ROUTE
    if not got.get("choices"):
        return got if sees_total else None
    if not sees_continuous:
        got.pop("usage", None)
    return got


@given(streams(), places, st.booleans(), st.booleans())
def test_any_cut_gives_the_same_to_client_and_meter(
    stream: tuple[bytes, list[dict[str, Any]]], at: list[int], sees_total: bool, sees_all: bool
) -> None:
    data, sent = stream
    sees = {"sees_total": sees_total or sees_all, "sees_continuous": sees_all}
    whole_out, whole_counts, whole_editor = edit_in_pieces([data], **sees)
    out, counts, editor = edit_in_pieces(cut(data, at), **sees)
    assert events_of(out) == events_of(whole_out)
    assert counts == whole_counts
    assert (editor.is_done, editor.has_content) == (whole_editor.is_done, whole_editor.has_content)
    wanted = [for_client(each, **sees) for each in sent]
    done = ["[DONE]"] if data.rstrip(b"\r\n").endswith(b"[DONE]") else []
    assert events_of(out) == [each for each in wanted if each is not None] + done
    assert counts == last_counts(sent)


def last_counts(sent: list[dict[str, Any]]) -> TokenUsage:
    """Return the counts that count: the last cumulative ones."""
    told = [each["usage"] for each in sent if "usage" in each]
    if not told:
        return TokenUsage()
    details = told[-1]["prompt_tokens_details"] or {}
    reasoning = told[-1]["completion_tokens_details"] or {}
    return TokenUsage(
        told[-1]["prompt_tokens"],
        details.get("cached_tokens"),
        told[-1]["completion_tokens"],
        reasoning.get("reasoning_tokens"),
    )


@given(streams(is_plain=True), places)
def test_what_needs_no_change_leaves_byte_for_byte(
    stream: tuple[bytes, list[dict[str, Any]]], at: list[int]
) -> None:
    data, _ = stream
    out, _, _ = edit_in_pieces(cut(data, at), sees_total=True, sees_continuous=True, renames=False)
    assert out == data


@given(streams(is_plain=True), st.booleans())
def test_the_fast_way_equals_the_careful_way(
    stream: tuple[bytes, list[dict[str, Any]]], sees_total: bool
) -> None:
    """A comment before it turns any run into one that is read event by event."""
    data, _ = stream
    fast, fast_counts, fast_editor = edit_in_pieces([data], sees_total=sees_total)
    careful, counts, editor = edit_in_pieces([b": careful\n\n" + data], sees_total=sees_total)
    assert events_of(fast) == events_of(careful)
    assert fast_counts == counts
    assert fast_editor.is_done == editor.is_done
    assert fast_editor.has_content == editor.has_content


@given(st.lists(st.binary(max_size=12) | st.sampled_from([b"\n", b"\r", b"\n\n", b"\r\n"])), places)
def test_the_aligner_loses_and_invents_nothing(parts: list[bytes], at: list[int]) -> None:
    data = b"".join(parts)
    aligner = FrameAligner(1 << 20)
    runs = [aligner.feed(part) for part in cut(data, at)]
    assert all(run == b"" or run.endswith(b"\n\n") for run in runs)
    got = b"".join(runs) + aligner.finish()
    plain = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    assert got.rstrip(b"\n") == plain.rstrip(b"\n")
    assert list(read_events(got)) == list(read_events(plain + b"\n\n"))


@given(places)
@example([1, 2, 3])
def test_a_byte_order_mark_is_no_part_of_the_first_event(at: list[int]) -> None:
    data = b"\xef\xbb\xbf" + b"".join(answer(["x"], model=ENGINE_MODEL))
    out, counts, _ = edit_in_pieces(cut(data, at))
    assert events_of(out)[0]["choices"][0]["delta"]["role"] == "assistant"
    assert counts == TokenUsage(10, None, 1, None)


@given(st.integers(1, 400), st.integers(1, 60))
def test_an_event_over_the_limit_is_refused_and_one_below_is_not(size: int, step: int) -> None:
    event = (
        b"data: " + b"x" * (size - 8) + b"\n\n" if size >= 8 else b"x" * max(size - 2, 0) + b"\n\n"
    )
    pieces = [event[at : at + step] for at in range(0, len(event), step)]
    aligner = FrameAligner(200)
    if len(event) <= 200 or len(pieces) == 1:  # one that comes in one read is bounded by the read
        assert b"".join(map(aligner.feed, pieces)) == event
    else:
        with pytest.raises(ReplyTooLargeError):
            deque(map(aligner.feed, pieces))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50)), max_size=20), st.booleans())
def test_choices_are_added_up_until_the_total_comes(
    told: list[tuple[int, int]], has_total: bool
) -> None:
    """Six choices: three prompts, two for each; the last count of each choice counts."""
    from gateway.dataplane.stream_editor import StreamEditor
    from gateway.dataplane.stream_usage import StreamUsage

    stream_usage = StreamUsage(choices_per_prompt=2, prompts=3)
    editor = StreamEditor(usage=stream_usage, rename=None, hides_total=True, hides_continuous=True)
    for index, completion in told:
        counts = usage(7 + index // 2, completion)
        editor.edit(chunk("x", index=index, counts=counts))
    if has_total:
        editor.edit(total_chunk(99, 77))
        assert stream_usage.total() == TokenUsage(99, None, 77, None)
        return
    last = dict(told)
    prompts = {index // 2 for index in last}
    expected = TokenUsage(sum(7 + prompt for prompt in prompts), None, sum(last.values()), None)
    assert stream_usage.total() == (expected if told else TokenUsage())


USAGE_IN_ODD_PLACES = [
    '{"id":"1","usage":{"prompt_tokens":1,"completion_tokens":2},"choices":[{"index":0}]}',
    '{"id":"1","choices":[{"index":0,"delta":{"usage":{"a":1}}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}',
    '{"id":"1","choices":[{"index":0}],"x":{"a":[],"usage":{"b":1}}}',
    '{"id":"1","choices":[{"index":0}],"usage":{"prompt_tokens":1,"completion_tokens":2,"note":"}"}}',
    '{"id":"1","choices":[{"index":0}],"usage":{"prompt_tokens":1,"completion_tokens":2,"d":{"e":{"f":{"g":1}}}}}',
    '{"id":"1","choices":[{"index":0,"delta":{"content":"],\\"usage\\":{}"}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}',
    '{"id":"1","choices":[{"index":0}],"usage":null}',
    '{"id":"1","choices":[{"index":0}],"usage":{}}',
]


@pytest.mark.parametrize("text", USAGE_IN_ODD_PLACES)
@pytest.mark.parametrize("prefix", [b"", b": careful\n\n"])
def test_taking_usage_out_touches_nothing_else(text: str, prefix: bytes) -> None:
    wanted = json.loads(text)
    if wanted.get("usage") is not None:
        del wanted["usage"]
    out, _, _ = edit_in_pieces([prefix + f"data: {text}\n\n".encode()])
    assert events_of(out) == [wanted]


def captured_streams() -> list[Path]:
    if not CAPTURES.is_dir():
        return []
    return sorted(
        path for path in CAPTURES.glob("*.response.http") if b"\ndata: " in path.read_bytes()
    )


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="../shared/captures is not beside this checkout")
def test_real_captures_in_any_cut() -> None:
    """Every stream recorded from vLLM, byte by byte and whole: same bytes out, usage found."""
    seen = 0
    for path in captured_streams():
        if "rawwire" in path.name or "responses_" in path.name or "anthropic" in path.name:
            continue  # chunked framing kept; other protocols
        _, _, body = path.read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")
        sees = {"sees_total": True, "sees_continuous": True, "renames": False}
        out, counts, editor = edit_in_pieces([body], **sees)
        by_byte = edit_in_pieces([body[at : at + 1] for at in range(len(body))], **sees)
        assert (by_byte[0], by_byte[1]) == (out, counts), path.name
        if editor.error is None:
            assert out == body, path.name
            assert editor.is_finished, path.name
            assert out.endswith(DONE_FRAME)
        else:
            assert path.name.startswith("death_")
            assert editor.error.message
            assert b"[DONE]" not in out
        hidden, hidden_counts, _ = edit_in_pieces([body])
        assert hidden_counts == counts
        assert not any(each.get("usage") for each in events_of(hidden) if each != "[DONE]")
        seen += 1
    assert seen > 15


def test_of_several_choices_a_count_behind_the_closing_one_is_taken_however_it_is_spaced() -> None:
    editor = StreamEditor(
        usage=StreamUsage(choices_per_prompt=2, prompts=1),
        rename=None,
        hides_total=False,
        hides_continuous=True,
    )
    editor.edit(b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n')
    closing = b'data: {"id":"c","choices":[],"usage":%b}\n\n'
    first = closing % b'{"prompt_tokens":1,"completion_tokens":2}'
    last = (closing % b'{"prompt_tokens":40,"completion_tokens":35}').replace(b'":{', b'": {')
    editor.edit(first + last)
    assert editor.usage.total() == TokenUsage(40, None, 35, None)
