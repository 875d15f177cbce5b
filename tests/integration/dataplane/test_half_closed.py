"""A client that ends its side of the connection and reads on, like ``nc -N``: never silence."""

from __future__ import annotations

import socket
import time

import pytest

from billing.usage.event import RequestStatus, TokenUsage
from tests.factories.engine_replies import STREAM_HEAD, chat_reply, chunk, encode, piece, whole
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.raw_http import RawReply, connect, read_reply, request_bytes
from tests.fixtures.scripted_engine import Hang, ScriptedEngine

GET = b"GET %b HTTP/1.1\r\nhost: x\r\nauthorization: Bearer fb-test-good\r\n\r\n"
PROMPT_SECONDS = 1.0


def chat(*, is_stream: bool) -> bytes:
    return request_bytes(encode({"model": "small", "messages": [], "stream": is_stream}))


def check_told(reply: RawReply) -> None:
    assert (reply.status, reply.error["code"]) == (400, "client_closed")
    assert reply.error["type"] == "invalid_request_error"
    assert reply.headers["x-request-id"].startswith("req_")
    assert reply.headers["connection"] == "close"


@pytest.mark.parametrize("is_stream", [True, False])
def test_who_waits_for_an_engine_counts_as_gone_and_is_told(
    plane: DataPlaneProcess, engine: ScriptedEngine, is_stream: bool
) -> None:
    """The end of its side is all that a closed connection shows, and the engine stops at once."""
    engine.reply(Hang())
    opened = plane.opened
    with connect(plane.port) as client:
        client.sendall(chat(is_stream=is_stream))
        engine.wait_request()
        ended_at = time.monotonic()
        client.shutdown(socket.SHUT_WR)
        assert engine.requests[-1].wait_left() - ended_at < PROMPT_SECONDS
        check_told(read_reply(client))
        assert client.recv(1) == b""
    close = plane.last_close(opened)
    assert (close.status, close.http_status) == (RequestStatus.CLIENT_CLOSED, 499)
    assert (close.usage, close.error_code) == (TokenUsage(), "client_closed")


def test_a_stream_ends_where_it_is(plane: DataPlaneProcess, engine: ScriptedEngine) -> None:
    engine.reply(STREAM_HEAD, piece(chunk("one")), Hang())
    opened = plane.opened
    with connect(plane.port) as client:
        client.sendall(chat(is_stream=True))
        seen = client.recv(65536)
        while b"one" not in seen:
            seen += client.recv(65536)
        client.shutdown(socket.SHUT_WR)
        engine.requests[-1].wait_left()
        while data := client.recv(65536):
            seen += data
    assert b"[DONE]" not in seen
    assert b"client_closed" not in seen  # no head in the middle of a body
    assert plane.last_close(opened).status is RequestStatus.CLIENT_CLOSED


@pytest.mark.parametrize(
    ("path", "status"), [(b"/health", 200), (b"/ready", 200), (b"/v1/models", 200), (b"/no", 404)]
)
def test_what_needs_no_engine_is_answered(
    plane: DataPlaneProcess, path: bytes, status: int
) -> None:
    for _ in range(5):  # the end comes in the same read, or in the next
        with connect(plane.port) as client:
            client.sendall((GET % path) * 2)
            client.shutdown(socket.SHUT_WR)
            assert [read_reply(client).status for _ in range(2)] == [status] * 2
            assert client.recv(1) == b""


def test_an_upload_that_ends_early_is_told(plane: DataPlaneProcess, engine: ScriptedEngine) -> None:
    opened = plane.opened
    with connect(plane.port) as client:
        client.sendall(chat(is_stream=False)[:-3])
        client.shutdown(socket.SHUT_WR)
        check_told(read_reply(client))
    assert (plane.opened, engine.requests) == (opened, [])


def test_a_pipelined_request_behind_one_that_waits(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """Its turn never comes: one reply says so, and the engine is not asked a second time."""
    engine.reply_once(whole(encode(chat_reply())))
    engine.reply(Hang())
    with connect(plane.port) as client:
        client.sendall(chat(is_stream=False) * 3)
        assert read_reply(client).status == 200
        client.shutdown(socket.SHUT_WR)
        check_told(read_reply(client))
        assert client.recv(1) == b""
    assert len(engine.requests) <= 2
