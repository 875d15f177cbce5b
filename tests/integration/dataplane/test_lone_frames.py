"""Frames that are a chunk and a read each, which leave as they came, and what comes between them."""

from __future__ import annotations

import pytest

from billing.usage.event import RequestStatus, TokenUsage
from gateway.dataplane.stream_editor import StreamEditor
from gateway.dataplane.stream_usage import StreamUsage
from tests.factories.engine_replies import (
    DONE,
    LAST_PIECE,
    STREAM_HEAD,
    chunk,
    event,
    piece,
    total_chunk,
)
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.scripted_engine import Fin, Pause, ScriptedEngine, Step
from tests.fixtures.streamed import Streamed, counts

_READ_APART = Pause(0.01)
_OPENING = [chunk(delta={"role": "assistant", "content": ""}), chunk("w0 "), chunk("w1 ")]
_FINISH = chunk(finish="stop")


def apart(*pieces: bytes) -> list[Step]:
    """Return a reply whose pieces are reads of their own, as an engine sends them."""
    steps: list[Step] = [STREAM_HEAD, _READ_APART]
    for each in pieces:
        steps += [each, _READ_APART]
    return steps


def closed(*pieces: bytes) -> list[Step]:
    """Return one that opens with lone frames, and ends well behind these."""
    tail = [chunk("end"), _FINISH, total_chunk(10, 9), DONE]
    return apart(*map(piece, _OPENING), *pieces, *map(piece, tail), LAST_PIECE)


_LONG = chunk("x" * 3_900)
_CRLF = chunk("crlf ").replace(b"\n", b"\r\n")
_USAGE = chunk("u ", counts={"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13})


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([piece(chunk(f"w{number} ")) for number in range(2, 30)], 28),
        ([piece(_LONG), piece(chunk("x" * 4_500)), piece(chunk("w "))], 3),
        ([piece(chunk("a ") + chunk("b ")), piece(chunk("c "))], 3),
        ([piece(chunk("a "))[:30], piece(chunk("a "))[30:], piece(chunk("b "))], 2),
        ([piece(chunk("a ")[:30]), piece(chunk("a ")[30:]), piece(chunk("b "))], 2),
        ([piece(chunk("a ")[:-1]), piece(b"\n"), piece(chunk("b "))], 2),
        ([piece(chunk("a ")) + piece(chunk("b ")), piece(chunk("c "))], 3),
        ([piece(b": keep-alive\n\n"), piece(chunk("a "))], 1),
        ([piece(_CRLF), piece(chunk("a ")), piece(_CRLF), piece(chunk("b "))], 4),
        ([piece(chunk("ä 你 ")), piece(chunk("\\u00e4 "))], 2),
        ([b"0" + piece(chunk("a ")), piece(chunk("b "))], 2),
        ([piece(chunk("a ")).replace(b"\r\n", b";x=1\r\n", 1), piece(chunk("b "))], 2),
        ([piece(b"data:" + chunk("a ")[6:]), piece(chunk("b "))], 2),
        ([piece(chunk('says "error" and "usage": {} ')), piece(chunk("b "))], 2),
    ],
)
def test_what_comes_between_lone_frames_arrives_as_ever(
    plane: DataPlaneProcess, engine: ScriptedEngine, pieces: list[bytes], words: int
) -> None:
    engine.reply(*closed(*pieces))
    got = Streamed(plane, stream_options={"include_usage": True})
    assert got.is_done
    assert len([data for data in got.datas if b'"content":"' in data]) == words + 4
    assert got.text.startswith("w0 w1 ")
    assert got.text.endswith("end")
    assert got.close.status is RequestStatus.COMPLETED
    assert got.close.usage == counts(10, 9)


def test_usage_that_nobody_asked_for_is_taken_out_between_lone_frames(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(*closed(piece(_USAGE), piece(chunk("a ")), piece(_USAGE)))
    got = Streamed(plane)
    assert got.is_done
    assert b"usage" not in got.raw
    assert got.text == "w0 w1 u a u end"
    assert got.close.usage == counts(10, 9)


def test_a_chunk_that_ends_an_event_is_not_taken_for_a_frame(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """Its event began in the chunk before, on a line of its own."""
    first, second = b'data: {"w":\n', b'data: {"id":"x"},' + chunk("two ")[7:]
    engine.reply(*closed(piece(chunk("a ")), piece(first), piece(second), piece(chunk("b "))))
    got = Streamed(plane)
    assert got.text == "w0 w1 a two b end"
    assert [each["w"] for each in got.chunks if "w" in each] == [{"id": "x"}]


@pytest.mark.parametrize("more", [{}, {"id": "chatcmpl-1"}])
def test_an_error_behind_lone_frames_ends_the_stream_with_it(
    plane: DataPlaneProcess, engine: ScriptedEngine, more: dict[str, str]
) -> None:
    error = {"message": "out of memory", "type": "server_error", "code": 500}
    told = event({**more, "error": error})
    engine.reply(*closed(piece(told)))
    got = Streamed(plane)
    assert "out of memory" in got.error["message"]
    assert got.close.status is RequestStatus.TRUNCATED
    assert got.close.usage == TokenUsage()  # the engine has counted nothing


@pytest.mark.parametrize("is_finished", [True, False])
def test_lone_frames_tell_whether_a_stream_without_its_mark_is_whole(
    plane: DataPlaneProcess, engine: ScriptedEngine, is_finished: bool
) -> None:
    last = [_FINISH] if is_finished else []
    engine.reply(*apart(*map(piece, _OPENING), *map(piece, last)), Fin())
    got = Streamed(plane)
    assert got.is_done == is_finished
    if is_finished:
        assert got.close.status is RequestStatus.COMPLETED
    else:
        assert got.error["type"] == "api_error"
        assert got.close.status is RequestStatus.TRUNCATED


def test_the_latest_frame_is_that_of_a_chunk_passed_on() -> None:
    """A stream that is ended for want of money repeats its id and its time."""
    editor = StreamEditor(
        usage=StreamUsage(choices_per_prompt=1, prompts=1),
        rename=None,
        hides_total=True,
        hides_continuous=True,
    )
    for frame in _OPENING:
        editor.edit(frame)
    assert editor.passes_chunks
    assert editor.latest_frame == _OPENING[-1].strip()
    assert editor.edit_chunk(piece(chunk("w2 "))) == piece(chunk("w2 "))
    assert editor.latest_frame == chunk("w2 ").strip()
    assert not editor.is_finished
    assert editor.edit_chunk(piece(_FINISH)) == piece(_FINISH)
    assert editor.is_finished
    assert editor.usage.uncounted_chunks == len(_OPENING) + 2
