"""What an engine writes around the body, after the head: trailers and chunks' lines, with and without an end."""

from __future__ import annotations

import pytest

from billing.usage.event import RequestStatus
from tests.factories.engine_replies import (
    DONE,
    STREAM_HEAD,
    chat_reply,
    chunk,
    encode,
    piece,
    usage,
    whole,
)
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.scripted_engine import Hang, Pause, ScriptedEngine, Step
from tests.fixtures.streamed import Streamed, counts

WHOLE_HEAD = STREAM_HEAD.replace(b"text/event-stream; charset=utf-8", b"application/json")
PART = 65536


def in_reads(data: bytes) -> tuple[Step, ...]:
    """Return a megabyte of ``data``, a part at a time, and then silence."""
    return (*(step for _ in range(16) for step in (data, Pause(0.01))), Hang())


# None of them is silent for as long as a timeout, and none ever ends.
ENDLESS: dict[str, tuple[Step, ...]] = {
    "trailers": (b"0\r\n", *in_reads(b"x-trailer: %b\r\n" % (b"t" * 1000) * 64)),
    "one trailer": (b"0\r\nx-trailer: ", *in_reads(b"t" * PART)),
    "a chunk's extension": (b"5;name=", *in_reads(b"v" * PART)),
}


@pytest.mark.parametrize("lines", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_stream_that_ends_in_endless_lines_is_cut(
    hasty_plane: DataPlaneProcess, engine: ScriptedEngine, lines: tuple[Step, ...]
) -> None:
    words = [chunk("w ", counts=usage(9, number)) for number in range(1, 4)]
    # The pauses let each piece be a read of its own, as in a stream that is under way.
    pieces = [step for word in words for step in (piece(word), Pause(0.02))]
    engine.reply(STREAM_HEAD, *pieces, *lines)
    got = Streamed(hasty_plane)
    assert got.text == "w w w "
    assert got.error["code"] == "engine_reply_malformed"
    assert (got.close.status, got.close.usage) == (RequestStatus.TRUNCATED, counts(9, 3))
    engine.requests[0].wait_left()


@pytest.mark.parametrize("lines", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_whole_reply_that_ends_in_endless_lines_is_none(
    hasty_plane: DataPlaneProcess, engine: ScriptedEngine, lines: tuple[Step, ...]
) -> None:
    engine.reply_once(WHOLE_HEAD + piece(encode(chat_reply())), Pause(0.02), *lines)
    engine.reply(whole(chat_reply("next")))
    reply = hasty_plane.chat()
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "engine_reply_malformed")
    assert hasty_plane.close_of(reply).status is RequestStatus.FAILED
    engine.requests[0].wait_left()
    assert hasty_plane.chat().json() == chat_reply("next")


@pytest.mark.parametrize("is_stream", [True, False])
def test_lines_between_the_pieces_of_a_body_do_not_add_up(
    plane: DataPlaneProcess, engine: ScriptedEngine, is_stream: bool
) -> None:
    """A megabyte of them in all, each a read of its own, and short trailers at the end."""
    if is_stream:
        parts = [chunk("w ", counts=usage(9, number)) for number in range(1, 16)]
        parts += [chunk(finish="stop", counts=usage(9, 15)), DONE]
    else:
        body = encode(chat_reply("w " * 15))
        parts = [body[start : start + 16] for start in range(0, len(body), 16)]
    steps: list[Step] = [STREAM_HEAD if is_stream else WHOLE_HEAD]
    for part in parts:
        steps += [b"%x;%b\r\n" % (len(part), b"e" * PART), Pause(0.005)]
        steps += [part + b"\r\n", Pause(0.005)]
    engine.reply(*steps, b"0\r\n", Pause(0.005), b"x-trailer: 1\r\n\r\n")
    if is_stream:
        got = Streamed(plane)
        assert (got.text, got.is_done) == ("w " * 15, True)
        assert (got.close.status, got.close.usage) == (RequestStatus.COMPLETED, counts(9, 15))
    else:
        assert plane.chat().json() == chat_reply("w " * 15)
    plane.chat()
    assert engine.requests[0].connection == engine.requests[1].connection  # it ended well: kept
