"""Connections to engines: kept, replaced, passed over; timeouts of every kind."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from billing.usage.event import RequestStatus, TokenUsage
from tests.factories.engine_replies import (
    DONE,
    STREAM_HEAD,
    answer,
    chat_reply,
    chunk,
    piece,
    stream,
    total_chunk,
    usage,
    whole,
)
from tests.factories.snapshots import put_file
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.scripted_engine import Fin, Hang, Pause, Reset, ScriptedEngine, Step

ROLE = chunk(delta={"role": "assistant", "content": ""}, counts=usage(4, 0))


def test_a_connection_is_kept_after_whole_replies(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    for reply in (
        whole(chat_reply()),
        stream(*answer(["x"])),
        whole({"error": {"message": "no"}}, 400),
        whole(b"x", 500),
        stream(*answer(["x"])[:-1]),
    ):
        engine.reply(reply)
        plane.close_of(plane.chat(stream=True))
    engine.reply(whole(chat_reply()))
    assert plane.chat().status_code == 200
    assert [request.connection for request in engine.requests] == [
        engine.requests[0].connection
    ] * 6


@pytest.mark.parametrize(
    "steps",
    [
        (whole(chat_reply(), headers="connection: close\r\n"),),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}",),
        (whole(chat_reply()) + b"HTTP/1.1 200 OK\r\n",),  # speaks on, unasked
        (whole(chat_reply()) + b"garbage",),
        (whole(chat_reply()), Fin()),
        (STREAM_HEAD + piece(chunk("x", finish="stop")) + piece(DONE), Pause(1.0)),  # never ends
    ],
)
def test_a_connection_is_not_kept_after_anything_odd(
    plane: DataPlaneProcess, engine: ScriptedEngine, steps: tuple[Step, ...]
) -> None:
    engine.reply_once(*steps)
    engine.reply(whole(chat_reply("second")))
    reply = plane.chat(stream=True)
    assert reply.status_code == 200
    assert plane.close_of(reply).status is RequestStatus.COMPLETED
    time.sleep(0.05)
    assert plane.chat().json() == chat_reply("second")
    first, second = engine.requests
    assert first.connection != second.connection


def test_case_75_a_second_reply_in_the_same_read_is_nobodys(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    poisoned = whole({"error": {"message": "poisoned"}}, 418, "x-poison: 1\r\n")
    engine.reply_once(whole(chat_reply("mine")) + poisoned)
    engine.reply_once(whole(chat_reply("empty")) + b"HTTP/1.1 204 X\r\n\r\n")
    engine.reply(whole(chat_reply("next")))
    assert plane.chat().json() == chat_reply("mine")
    assert plane.chat().json() == chat_reply("empty")
    assert plane.chat().json() == chat_reply("next")
    assert len({request.connection for request in engine.requests}) == 3


@pytest.mark.parametrize("end", [Fin(), Reset()])
@pytest.mark.parametrize("is_stream", [True, False])
def test_a_stale_connection_is_replaced_once(
    plane: DataPlaneProcess, engine: ScriptedEngine, end: Fin | Reset, is_stream: bool
) -> None:
    """The engine takes a request on a kept connection and closes without a byte of reply."""
    engine.reply_once(whole(chat_reply()))
    engine.reply_once(end)
    engine.reply(stream(*answer(["x"])) if is_stream else whole(chat_reply()))
    assert plane.chat().status_code == 200
    opened = plane.opened
    reply = plane.chat(stream=is_stream)
    assert reply.status_code == 200
    close = plane.close_of(reply)
    assert (close.status, plane.opened) == (RequestStatus.COMPLETED, opened + 1)
    first, stale, last = engine.requests
    assert first.connection == stale.connection != last.connection
    assert stale.body == last.body
    assert stale.header("x-request-id") == last.header("x-request-id")


def test_a_stale_connection_is_not_replaced_twice(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply_once(whole(chat_reply()))
    engine.reply(Fin())
    assert plane.chat().status_code == 200
    reply = plane.chat()
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "engine_cut")
    assert len(engine.requests) == 3


def test_nothing_is_sent_again_once_a_byte_came(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply_once(whole(chat_reply()))
    engine.reply(b"H", Pause(0.05), Fin())
    assert plane.chat().status_code == 200
    assert plane.chat().json()["error"]["code"] == "engine_cut"
    assert len(engine.requests) == 2


def test_case_27_a_dead_replica_is_passed_over_for_one_close(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(whole(chat_reply()))
    opened = plane.opened
    reply = plane.chat(model="two")
    assert reply.status_code == 200
    assert reply.headers["x-forebay-replica"] == "rep_live"
    close = plane.close_of(reply)
    assert close.replica_id == "rep_live"
    assert (close.status, close.usage) == (RequestStatus.COMPLETED, TokenUsage(10, None, 3, None))
    assert plane.opened == opened + 1


def test_no_replica_can_be_reached(plane: DataPlaneProcess) -> None:
    reply = plane.chat(model="dead")
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "engine_unreachable")
    assert (reply.headers["retry-after"], reply.headers["retry-after-ms"]) == ("2", "2000")
    close = plane.close_of(reply)
    assert (close.status, close.http_status, close.usage) == (
        RequestStatus.FAILED,
        503,
        TokenUsage(),
    )


@pytest.fixture
def full_backlog() -> Iterator[str]:
    """An address whose connections are never accepted: the connect itself hangs."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
            fillers.append(filler)
        yield f"http://127.0.0.1:{port}"
        for filler in fillers:
            filler.close()


def test_a_connect_that_hangs_ends_in_time(
    hasty_plane: DataPlaneProcess, engine: ScriptedEngine, full_backlog: str
) -> None:
    assert engine is not None
    dead_url, hasty_plane.dead_url = hasty_plane.dead_url, full_backlog
    try:
        publish_and_wait(hasty_plane)
        started = time.monotonic()
        reply = hasty_plane.chat(model="dead")
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "engine_unreachable")
        assert 0.4 < time.monotonic() - started < 2
    finally:
        hasty_plane.dead_url = dead_url
        publish_and_wait(hasty_plane)


def publish_and_wait(plane: DataPlaneProcess) -> None:
    plane.publish()
    deadline = time.monotonic() + 5
    while plane.get("/ready").json()["snapshot_version"] != plane.version:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("steps", "is_stream", "span"),
    [
        ((Hang(),), True, (1.1, 2.5)),
        ((STREAM_HEAD, Hang()), True, (1.1, 2.5)),
        ((STREAM_HEAD + piece(b": still here\n\n"), Hang()), True, (1.1, 2.5)),
        ((Hang(),), False, (1.4, 3)),
        ((whole(chat_reply())[:60], Hang()), False, (1.4, 3)),
    ],
    ids=["stream", "stream head", "stream comment", "whole", "half"],
)
def test_silence_before_the_answer_is_a_504(
    hasty_plane: DataPlaneProcess,
    engine: ScriptedEngine,
    steps: tuple[Step, ...],
    is_stream: bool,
    span: tuple[float, float],
) -> None:
    engine.reply(*steps)
    started = time.monotonic()
    reply = hasty_plane.chat(stream=is_stream)
    assert span[0] < time.monotonic() - started < span[1]
    close = hasty_plane.close_of(reply)
    if reply.status_code == 200:  # the comment went out before
        assert b"engine_timeout" in reply.content
    else:
        assert (reply.status_code, reply.json()["error"]["code"]) == (504, "engine_timeout")
    assert (close.status, close.error_code) == (RequestStatus.FAILED, "engine_timeout")
    assert close.usage == TokenUsage()
    engine.requests[0].wait_left()
    assert len(engine.requests) == 1


def test_case_19_a_prompt_that_nothing_came_of_is_not_billed(
    hasty_plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """The role chunk came, with the prompt's count, and then the engine fell silent."""
    engine.reply(STREAM_HEAD + piece(ROLE), Hang())
    reply = hasty_plane.chat(stream=True)
    assert b"engine_timeout" in reply.content
    assert hasty_plane.close_of(reply).status is RequestStatus.FAILED


def test_steady_output_meets_no_timeout(
    hasty_plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """Two seconds of a stream, longer than each timeout, with no gap as long as the idle one."""
    steps: list[Step] = [STREAM_HEAD, piece(ROLE), Pause(0.9)]
    for number in range(1, 6):
        steps += [piece(chunk("x", counts=usage(4, number))), Pause(0.25)]
    engine.reply(*steps, *stream(chunk(finish="stop"), total_chunk(4, 5), DONE).split(STREAM_HEAD))
    reply = hasty_plane.chat(stream=True)
    assert reply.content.endswith(DONE)
    close = hasty_plane.close_of(reply)
    assert (close.status, close.usage) == (RequestStatus.COMPLETED, TokenUsage(4, None, 5, None))


def test_a_damaged_snapshot_file_changes_nothing(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(whole(chat_reply()))
    put_file(Path(plane.snapshot_path), b'{"version": 99, "schema_version"')
    time.sleep(0.3)
    assert plane.chat().status_code == 200
    publish_and_wait(plane)
