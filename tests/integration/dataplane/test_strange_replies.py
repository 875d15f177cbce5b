"""Replies in shapes that engines have been seen to write, and a few that nobody should."""

from __future__ import annotations

import pytest

from billing.usage.event import RequestStatus
from tests.factories.engine_replies import (
    DONE,
    LAST_PIECE,
    STREAM_HEAD,
    chat_reply,
    chunk,
    encode,
    piece,
    stream,
    total_chunk,
    usage,
    whole,
)
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.scripted_engine import Fin, Pause, ScriptedEngine
from tests.fixtures.streamed import Streamed, counts
from tests.integration.dataplane.test_odd_counts import DEEP, TRAILING


@pytest.mark.parametrize("choices", [1, 2])
@pytest.mark.parametrize("has_id", [True, False])
def test_a_finish_reason_without_text_is_no_end(
    plane: DataPlaneProcess, engine: ScriptedEngine, choices: int, has_id: bool
) -> None:
    """Some servers write ``"finish_reason": ""`` in every chunk but the last."""
    parts = [chunk("a", index=at, finish="", counts=usage(10, 1)) for at in range(choices)]
    if not has_id:
        parts = [part.replace(b'"id":"chatcmpl-1",', b"") for part in parts]
    engine.reply(STREAM_HEAD + b"".join(map(piece, parts)), Pause(0.05), Fin())
    got = Streamed(plane, n=choices)
    assert got.error["code"] == "engine_cut"
    assert got.close.status is RequestStatus.TRUNCATED
    assert got.close.usage == counts(10, choices)


@pytest.mark.parametrize("colon", [b": ", b":", b" : ", b":\t"])
@pytest.mark.parametrize("id_colon", [b":", b": "])
@pytest.mark.parametrize("is_asked_for", [True, False])
def test_usage_is_found_however_it_is_spaced(
    plane: DataPlaneProcess,
    engine: ScriptedEngine,
    colon: bytes,
    id_colon: bytes,
    is_asked_for: bool,
) -> None:
    parts = [
        chunk("a", counts=usage(10, 1)),
        chunk("b", finish="stop", counts=usage(10, 2)),
        total_chunk(10, 2),
    ]
    spaced = [
        part.replace(b'"usage":', b'"usage"' + colon).replace(b'"id":', b'"id"' + id_colon)
        for part in parts
    ]
    engine.reply(stream(*spaced, DONE))
    options = {"include_usage": True} if is_asked_for else None
    got = Streamed(plane, stream_options=options)
    assert got.is_done
    assert got.text == "ab"
    assert got.close.usage == counts(10, 2)
    assert [bool(each.get("usage")) for each in got.chunks] == [False, False, True][
        : 2 + is_asked_for
    ]


@pytest.mark.parametrize(("trailing", "told"), TRAILING.values(), ids=TRAILING.keys())
def test_the_last_counts_of_one_read_that_can_be_read_are_billed(
    plane: DataPlaneProcess, engine: ScriptedEngine, trailing: bytes, told: tuple[int, int]
) -> None:
    engine.reply(
        STREAM_HEAD
        + piece(chunk("a", finish="stop", counts=usage(10, 5)) + trailing + DONE)
        + LAST_PIECE
    )
    got = Streamed(plane)
    assert got.is_done
    assert got.close.usage == counts(*told)


@pytest.mark.parametrize("has_id", [True, False])
def test_a_chunk_nested_without_end_never_ends_a_stream_unbilled(
    plane: DataPlaneProcess, engine: ScriptedEngine, has_id: bool
) -> None:
    members = b'"x":%b,"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2}' % DEEP
    deep = b"data: {%b%b}\n\n" % (b'"id":"1",' if has_id else b"", members)
    engine.reply(
        STREAM_HEAD + piece(chunk("a", counts=usage(10, 1))),
        Pause(0.05),
        piece(deep),
        Pause(0.05),
        piece(chunk(finish="stop") + DONE) + LAST_PIECE,
    )
    got = Streamed(plane)
    assert got.raw.endswith(DONE)
    assert got.close.status is RequestStatus.COMPLETED
    assert got.close.usage == counts(10, 1)
    assert "Traceback" not in plane.log


def test_an_answer_nested_without_end_is_a_502(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(whole(encode(chat_reply())[:-1] + b',"x":%b}' % DEEP))
    reply = plane.chat()
    assert reply.status_code == 502
    assert reply.json()["error"]["code"] == "engine_reply_malformed"
    assert plane.close_of(reply).status is RequestStatus.FAILED


def test_what_stands_behind_the_body_is_no_part_of_the_head(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """RFC 9110 section 6.5.1: trailers are not merged into the header section."""
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    body = piece(encode(chat_reply()))
    engine.reply(head + body + b"0\r\ncontent-encoding: gzip\r\nretry-after: 5\r\n\r\n")
    reply = plane.chat()
    assert reply.status_code == 200
    assert plane.close_of(reply).usage == counts(10, 3)


def test_a_refusal_is_an_answer(plane: DataPlaneProcess, engine: ScriptedEngine) -> None:
    """As OpenAI writes it, in the place of content: it is sent on as it comes."""
    parts = [chunk(delta={"refusal": text}, counts=usage(10, 1)) for text in ("I ", "can't.")]
    engine.reply(STREAM_HEAD + b"".join(map(piece, parts)), Pause(0.05), Fin())
    got = Streamed(plane)
    assert got.response.status_code == 200
    assert got.error["code"] == "engine_cut"
    assert got.close.status is RequestStatus.TRUNCATED
    assert got.close.usage == counts(10, 1)
