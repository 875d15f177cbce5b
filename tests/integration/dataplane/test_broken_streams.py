"""Streams that break: cut, silent, with an error inside, or no streams at all."""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import Any

import pytest

from billing.usage.event import RequestStatus, TokenUsage
from tests.factories.engine_replies import (
    DONE,
    LAST_PIECE,
    STREAM_HEAD,
    answer,
    chunk,
    encode,
    event,
    piece,
    stream,
    total_chunk,
    usage,
    whole,
)
from tests.factories.snapshots import ENGINE_MODEL
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.scripted_engine import Fin, Hang, Pause, Reset, ScriptedEngine, Step
from tests.fixtures.streamed import Streamed, counts

BROKEN_ENDS: dict[str, tuple[Step, ...]] = {
    "reset": (Pause(0.05), Reset()),
    "fin inside the chunked body": (Fin(),),
    "a proper end without the end of the answer": (LAST_PIECE,),
    "garbage instead of a chunk size": (b"zz\r\n",),
}


@pytest.mark.parametrize("end", BROKEN_ENDS.values(), ids=BROKEN_ENDS.keys())
def test_cases_11_12_a_cut_stream_ends_with_an_error(
    plane: DataPlaneProcess, engine: ScriptedEngine, end: tuple[Step, ...]
) -> None:
    words = [chunk("w ", counts=usage(9, number)) for number in range(1, 41)]
    engine.reply(STREAM_HEAD + b"".join(map(piece, words)), *end)
    got = Streamed(plane)
    assert got.text == "w " * 40
    assert got.error["type"] == "api_error"
    close = got.close
    assert (close.status, close.http_status) == (RequestStatus.TRUNCATED, 200)
    assert close.usage == counts(9, 40)
    assert close.error_code in ("engine_cut", "engine_reply_malformed")
    assert len(engine.requests) == 1  # content went out: not tried again


def test_case_11_an_error_inside_the_stream_is_told_once_and_clean(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    message = f"engine dead, model {ENGINE_MODEL} at http://10.1.2.3:8000/v1"
    engine.reply(
        stream(
            chunk("Hallo", counts=usage(4, 1), model=ENGINE_MODEL),
            event({"error": {"message": message, "type": "x", "param": None, "code": 500}}),
            DONE,
        )
    )
    got = Streamed(plane, model="alias")
    assert got.error["message"] == "engine dead, model alias at [address]"
    assert got.error["code"] == "engine_failed"
    assert (got.close.status, got.close.usage) == (RequestStatus.TRUNCATED, counts(4, 1))


def test_a_frame_that_was_cut_never_becomes_data(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """The answer was whole, only its closing counts are not: half a JSON would crash the client."""
    words = [chunk("Ja", counts=usage(4, 1)), chunk(finish="stop", counts=usage(4, 1))]
    engine.reply(STREAM_HEAD + b"".join(map(piece, [*words, total_chunk(4, 1)[:90]])), Fin())
    got = Streamed(plane, stream_options={"include_usage": True})
    assert (got.text, got.is_done) == ("Ja", True)
    assert all(isinstance(each, dict) for each in got.chunks)
    assert (got.close.status, got.close.usage) == (RequestStatus.COMPLETED, counts(4, 1))


def test_a_content_type_is_a_stream_in_any_case(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    head = STREAM_HEAD.replace(b"text/event-stream", b"Text/Event-Stream")
    engine.reply(head + b"".join(map(piece, answer(["Ja"]))) + LAST_PIECE)
    got = Streamed(plane)
    assert (got.text, got.is_done, got.close.usage) == ("Ja", True, counts(10, 1))


@pytest.mark.parametrize("has_id", [True, False])
def test_case_11_an_error_in_the_shape_of_a_chunk(
    plane: DataPlaneProcess, engine: ScriptedEngine, has_id: bool
) -> None:
    """Some routers send an error inside an ordinary chunk whose finish_reason is "error"."""
    odd = {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
        "error": {"code": 502, "message": "provider gone"},
    }
    odd = {"id": "chatcmpl-1", **odd} if has_id else odd
    engine.reply(stream(chunk("Hallo", counts=usage(4, 1)), event(odd), DONE))
    got = Streamed(plane)
    assert got.error["message"] == "provider gone"
    assert got.close.status is RequestStatus.TRUNCATED


@pytest.mark.parametrize("model", ["small", "alias"])
@pytest.mark.parametrize("value", [None, False, {}, "", 0, [], True], ids=str)
def test_an_error_that_is_none_is_none(
    plane: DataPlaneProcess, engine: ScriptedEngine, value: Any, model: str
) -> None:
    told = encode({"error": value})[1:-1]
    events = [each.replace(b"}]", b"}]," + told, 1) for each in answer(["Ha", "llo"], prompt=4)]
    assert told in events[1]
    engine.reply(stream(*events))
    got = Streamed(plane, model=model)
    assert (got.text, got.is_done) == ("Hallo", True)
    assert all(each["error"] == value for each in got.chunks)
    assert (got.close.status, got.close.usage) == (RequestStatus.COMPLETED, counts(4, 2))


ERROR_EVENTS: list[tuple[bytes, str]] = [
    (event({"error": "plain words"}), "plain words"),
    (event({"id": "chatcmpl-1", "error": "plain words", "choices": None}), "plain words"),
    (event({"object": "error", "message": "old shape", "error": None, "code": 500}), "old shape"),
    (event({"error": {"message": "odd code", "code": 5.5, "param": []}}), "odd code"),
    (event({"error": {"message": "odd usage"}, "usage": 5}), "odd usage"),
    (event({"error": {"message": {}}}), "The engine failed inside the reply."),
    (b"event: error\n" + event({"message": "named so", "choices": 5}), "named so"),
    (b"event: error\ndata: Traceback\n\n", "The engine failed inside the reply."),
]


@pytest.mark.parametrize(("sent", "message"), ERROR_EVENTS, ids=lambda value: str(value)[:60])
def test_case_11_every_shape_of_an_error(
    plane: DataPlaneProcess, engine: ScriptedEngine, sent: bytes, message: str
) -> None:
    engine.reply(stream(chunk("Hallo", counts=usage(4, 1)), sent, DONE))
    got = Streamed(plane)
    assert (got.error["message"], got.error["code"]) == (message, "engine_failed")
    assert (got.close.status, got.close.usage) == (RequestStatus.TRUNCATED, counts(4, 1))


def test_case_11_silence_past_the_idle_timeout(
    hasty_plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(STREAM_HEAD + piece(chunk("Hallo", counts=usage(4, 1))), Hang())
    got = Streamed(hasty_plane)
    assert (got.text, got.error["code"]) == ("Hallo", "engine_timeout")
    assert (got.close.status, got.close.usage) == (RequestStatus.TRUNCATED, counts(4, 1))
    engine.requests[0].wait_left()


def test_case_12_one_choice_of_two_finished_is_not_the_end(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(
        stream(
            chunk("a", index=0, counts=usage(4, 1)),
            chunk("b", index=1, counts=usage(4, 1)),
            chunk(index=0, finish="stop", counts=usage(4, 1)),
        )
    )
    got = Streamed(plane, n=2)
    assert got.error["code"] == "engine_cut"
    assert (got.close.status, got.close.usage) == (RequestStatus.TRUNCATED, counts(4, 2))


@pytest.mark.parametrize("comes_in", ["one read", "many reads"])
def test_case_12_without_done_both_choices_finished_is_the_end(
    plane: DataPlaneProcess, engine: ScriptedEngine, comes_in: str
) -> None:
    pieces = [
        piece(each)
        for each in (
            chunk("a", index=0),
            chunk(index=0, finish="stop"),
            chunk("b", index=1),
            chunk("c", index=1),
            chunk(index=1, finish="length"),
            total_chunk(4, 3),
        )
    ]
    if comes_in == "one read":
        engine.reply(STREAM_HEAD + b"".join(pieces) + LAST_PIECE)
    else:
        engine.reply(STREAM_HEAD, *(s for each in pieces for s in (each, Pause(0.01))), LAST_PIECE)
    got = Streamed(plane, n=2)
    assert got.is_done
    assert (got.close.status, got.close.usage) == (RequestStatus.COMPLETED, counts(4, 3))


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("retry-after: 7\r\n", 7),
        ("retry-after: 0\r\n", 2),
        ("retry-after: 1.2\r\n", 2),
        ("", 2),
        ("retry-after: soon\r\n", 2),
        ("retry-after: nan\r\n", 2),
        ("retry-after: -5\r\n", 2),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_case_39_an_engines_retry_after_is_passed_on(
    plane: DataPlaneProcess, engine: ScriptedEngine, status: int, line: str, seconds: int
) -> None:
    engine.reply(whole({"error": {"message": "no"}}, status, line))
    reply = plane.chat()
    assert (reply.status_code, reply.headers["retry-after"]) == (status, str(seconds))


def test_case_39_a_date_is_passed_on_as_seconds(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    line = f"retry-after: {formatdate(time.time() + 30, usegmt=True)}\r\n"
    engine.reply(whole({"error": {"message": "no"}}, 429, line))
    assert 28 <= int(plane.chat().headers["retry-after"]) <= 30


@pytest.mark.parametrize(
    ("status", "told"),
    [(400, 400), (401, 502), (404, 502), (422, 400), (429, 429), (500, 502), (503, 503)],
)
def test_case_13_an_error_status_instead_of_a_stream(
    plane: DataPlaneProcess, engine: ScriptedEngine, status: int, told: int
) -> None:
    detail = {"message": "no", "type": "x", "param": None, "code": status}
    engine.reply(whole({"error": detail}, status, "retry-after: 7\r\n"))
    got = Streamed(plane)
    assert got.response.status_code == told
    assert got.response.headers["content-type"] == "application/json"
    assert set(got.response.json()["error"]) == {"message", "type", "param", "code"}
    assert got.response.headers.get("retry-after") == ("7" if told in (429, 503) else None)
    assert got.close.usage == TokenUsage()
    is_clients = told < 500
    assert got.close.status is (RequestStatus.REJECTED if is_clients else RequestStatus.FAILED)
    assert got.close.http_status == told


@pytest.mark.parametrize(("code", "told"), [(400, 400), (500, 502)])
def test_case_13_an_error_event_first_and_an_open_socket(
    plane: DataPlaneProcess, engine: ScriptedEngine, code: int, told: int
) -> None:
    error = {"error": {"message": "n must be 1 or more", "type": "x", "param": "n", "code": code}}
    engine.reply(STREAM_HEAD + piece(event(error)), Hang())
    got = Streamed(plane)
    assert got.response.status_code == told
    assert got.response.json()["error"]["message"] == "n must be 1 or more"
    assert got.close.usage == TokenUsage()
    assert got.close.status is (RequestStatus.REJECTED if told == 400 else RequestStatus.FAILED)
    engine.requests[0].wait_left()


def test_a_stream_that_comes_compressed_is_refused(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
    engine.reply(head + piece(b"\x1f\x8b") + LAST_PIECE)
    got = Streamed(plane)
    assert got.response.status_code == 502
    assert got.close.status is RequestStatus.FAILED
