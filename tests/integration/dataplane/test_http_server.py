"""Our own HTTP server, at the bytes: what it refuses, how it frames, what it keeps open."""

from __future__ import annotations

import json
import socket
import time

import pytest

from tests.factories.engine_replies import STREAM_HEAD, chat_reply, chunk, encode, piece, whole
from tests.factories.snapshots import SECRET
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.raw_http import connect
from tests.fixtures.scripted_engine import ScriptedEngine

BODY = encode({"model": "small", "messages": [{"role": "user", "content": "Hi"}]})
HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"


def post(body: bytes = BODY, extra: bytes = b"", version: bytes = b"HTTP/1.1") -> bytes:
    return (
        b"POST /v1/chat/completions %b\r\nhost: x\r\nauthorization: Bearer %b\r\n"
        b"content-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b"
        % (version, SECRET.encode(), extra, len(body), body)
    )


def read_close(client: socket.socket) -> bytes:
    client.settimeout(5)
    seen = b""
    while data := client.recv(65536):
        seen += data
    return seen


def exchange(plane: DataPlaneProcess, request: bytes) -> bytes:
    with connect(plane.port) as client:
        client.sendall(request)
        return read_close(client)


MALFORMED = {
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /health HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    "two lengths": post(extra=b"content-length: 5\r\n"),
    "length and chunks": post(extra=b"transfer-encoding: chunked\r\n"),
    "unknown transfer coding": (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: xchunked\r\n\r\n"
    ),
    "gzip as transfer coding": (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n"
    ),
    "chunks in HTTP/1.0": (
        b"POST /v1/chat/completions HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "two keys": post(extra=b"authorization: Bearer other\r\n"),
    "two keys of another name": post(extra=b"x-api-key: a\r\nX-API-Key: b\r\n"),
    "two types": post(extra=b"content-type: text/plain\r\n"),
    "negative length": (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n"
    ),
    "space before colon": b"GET /health HTTP/1.1\r\nhost : x\r\n\r\n",
    "folded header": b"GET /health HTTP/1.1\r\nhost: x\r\na: b\r\n c\r\n\r\n",
    "bad chunk size": (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"
        b"authorization: Bearer " + SECRET.encode() + b"\r\n\r\nzz\r\n"
    ),
    "another version": b"GET /health HTTP/1.2\r\nhost: x\r\n\r\n",
    "HTTP/2 from the start": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/2 in the request line": b"GET /health HTTP/2.0\r\nhost: x\r\n\r\n",
    "HTTP/0.9 in the request line": b"GET /health HTTP/0.9\r\nhost: x\r\n\r\n",
    "a path in the host": b"GET /health HTTP/1.1\r\nhost: a/b\r\n\r\n",
    "a blank in the host": b"GET /health HTTP/1.1\r\nhost: a b\r\n\r\n",
    "a user in the host": b"GET /health HTTP/1.1\r\nhost: me@a\r\n\r\n",
    "unknown method": b"FOO /health HTTP/1.1\r\nhost: x\r\n\r\n",
    "no target": b"GET health HTTP/1.1\r\nhost: x\r\n\r\n",
    "a target without a host": b"GET http:// HTTP/1.1\r\nhost: x\r\n\r\n",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_not_http_is_a_400_in_our_shape(
    plane: DataPlaneProcess, engine: ScriptedEngine, name: str
) -> None:
    asked = len(engine.requests)
    with connect(plane.port) as client:
        client.sendall(MALFORMED[name])
        head, _, body = read_close(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 "), head
    assert b"\r\nx-request-id: req_" in head
    assert b"\r\nconnection: close" in head
    error = json.loads(body)["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "malformed_http")
    assert "callback" not in error["message"]
    assert len(engine.requests) == asked


def test_a_body_packed_by_its_transfer_coding_is_a_501(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """RFC 9112 section 6.1; the engine would be sent gzip as if it were JSON."""
    asked = len(engine.requests)
    head = post(extra=b"transfer-encoding: gzip, chunked\r\n").partition(b"content-length")[0]
    reply = exchange(plane, head + b"\r\n3\r\n\x1f\x8b\x08\r\n0\r\n\r\n" + HEALTH)
    assert reply.startswith(b"HTTP/1.1 501 ")
    assert b"\r\nconnection: close" in reply
    assert b'"unsupported_transfer_coding"' in reply
    assert reply.count(b"HTTP/1.1 ") == 1
    assert len(engine.requests) == asked


@pytest.mark.parametrize("zeros", [30, 5000])
def test_a_length_with_leading_zeros_is_that_length(
    plane: DataPlaneProcess, engine: ScriptedEngine, zeros: int
) -> None:
    engine.reply(whole(chat_reply()))
    request = post(extra=b"connection: close\r\n")
    request = request.replace(b"content-length: ", b"content-length: " + b"0" * zeros)
    assert exchange(plane, request).startswith(b"HTTP/1.1 200 ")


def test_a_header_twice_with_one_value_is_one(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply_once(whole(encode(chat_reply())))
    twice = b"content-type: application/json\r\nauthorization: Bearer %b\r\n" % SECRET.encode()
    reply = exchange(plane, post(extra=twice + b"connection: close\r\n"))
    assert reply.startswith(b"HTTP/1.1 200 ")


def test_a_body_packed_twice_is_called_so(plane: DataPlaneProcess) -> None:
    twice = b"content-encoding: gzip\r\ncontent-encoding: gzip\r\nconnection: close\r\n"
    assert b'"unsupported_content_encoding"' in exchange(plane, post(extra=twice))


def test_headers_over_the_limit_are_a_431(plane: DataPlaneProcess) -> None:
    for line in (
        b"a: " + b"b" * 70_000 + b"\r\n",
        b"".join(b"h%d: v\r\n" % n for n in range(9000)),
        b"x-again: and again\r\n" * 4000,
    ):
        reply = exchange(plane, b"GET /health HTTP/1.1\r\nhost: x\r\n" + line + b"\r\n")
        assert reply.startswith(b"HTTP/1.1 431 "), reply[:200]
        assert b'"headers_too_large"' in reply


def test_a_header_without_end_is_not_gathered_for_ever(plane: DataPlaneProcess) -> None:
    with connect(plane.port) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\na: ")
        try:
            for _ in range(400):
                client.sendall(b"b" * 1000)
                time.sleep(0.001)
        except OSError:
            pass
        assert b" 431 " in read_close(client)[:40]


def test_pipelined_requests_are_answered_in_order(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply_once(whole(encode(chat_reply())))
    last = b"GET /nowhere HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    reply = exchange(plane, post() + HEALTH + HEALTH + last)
    statuses = [line for line in reply.split(b"\r\n") if b"HTTP/1.1 " in line]
    assert [line.rpartition(b"HTTP/1.1 ")[2][:3] for line in statuses] == [
        *(b"200", b"200", b"200"),
        b"404",
    ]
    assert reply.index(b"chat.completion") < reply.index(b'{"status":"ok"}')


def test_garbage_behind_a_request_does_not_cost_its_answer(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply_once(whole(encode(chat_reply())))
    reply = exchange(plane, post() + b"\x00\x01garbage\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 200 ")
    assert b"chat.completion" in reply
    assert b"HTTP/1.1 400 " in reply


def test_one_byte_at_a_time(plane: DataPlaneProcess, engine: ScriptedEngine) -> None:
    engine.reply_once(whole(encode(chat_reply())))
    with connect(plane.port) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in post(extra=b"connection: close\r\n"):
            client.sendall(bytes([byte]))
        assert read_close(client).startswith(b"HTTP/1.1 200 ")


def test_expect_100_continue(plane: DataPlaneProcess, engine: ScriptedEngine) -> None:
    engine.reply_once(whole(encode(chat_reply())))
    request = post(extra=b"expect: 100-continue\r\nconnection: close\r\n")
    with connect(plane.port) as client:
        client.sendall(request[: -len(BODY)])
        client.settimeout(5)
        assert client.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(BODY)
        assert read_close(client).startswith(b"HTTP/1.1 200 ")


def test_a_refused_client_is_not_asked_for_its_body(plane: DataPlaneProcess) -> None:
    request = post(extra=b"expect: 100-continue\r\n").replace(SECRET.encode(), b"fb-wrong")
    with connect(plane.port) as client:
        client.sendall(request[: -len(BODY)])
        reply = read_close(client)
    assert reply.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close" in reply


def test_http_1_0_streams_end_with_the_connection(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    body = encode({"model": "small", "messages": [], "stream": True})
    end = piece(chunk(finish="stop")) + piece(b"data: [DONE]\n\n") + b"0\r\n\r\n"
    engine.reply_once(STREAM_HEAD, piece(chunk("Hello")), end)
    head, _, data = exchange(plane, post(body, version=b"HTTP/1.0")).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert data.startswith(b"data: {")
    assert data.endswith(b"data: [DONE]\n\n")


def test_head_has_the_length_and_no_body(plane: DataPlaneProcess) -> None:
    reply = exchange(plane, b"HEAD /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert b"\r\ncontent-length: 15\r\n" in reply
    assert reply.endswith(b"\r\n\r\n")


def test_an_absolute_target(plane: DataPlaneProcess) -> None:
    request = b"GET http://elsewhere/health?x=1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    assert exchange(plane, request).startswith(b"HTTP/1.1 200 ")


def test_a_connection_serves_many_requests(plane: DataPlaneProcess) -> None:
    with connect(plane.port) as client:
        client.settimeout(5)
        for _ in range(50):
            client.sendall(HEALTH)
            reply = client.recv(4096)
            assert reply.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"\r\ndate: " in reply
            assert b"connection: close" not in reply


def test_http_1_0_is_kept_alive_where_asked_and_says_so(plane: DataPlaneProcess) -> None:
    """RFC 9112 section 9.3: without the word in the reply such a client waits for the close."""
    kept = b"GET /health HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"
    reply = exchange(plane, kept + kept + b"GET /health HTTP/1.0\r\n\r\n")
    assert reply.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert reply.count(b"\r\nconnection: keep-alive\r\n") == 2
    assert reply.count(b"\r\nconnection: close\r\n") == 1
