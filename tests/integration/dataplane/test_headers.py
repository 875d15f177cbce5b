"""Headers: what an engine sees is our own list; framing tricks end at the gateway."""

from __future__ import annotations

import socket

import pytest

from tests.factories.engine_replies import answer, chat_reply, encode, stream, whole
from tests.factories.snapshots import ENGINE_SECRET
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.raw_http import connect, exchange, read_reply, request_bytes
from tests.fixtures.scripted_engine import ScriptedEngine

BODY = encode({"model": "small", "messages": [{"role": "user", "content": "Hi"}]})
KEY = "authorization: Bearer fb-test-good\r\n"
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

CLIENT_HEADERS = (
    KEY + "connection: close, x-secret\r\nx-secret: 1\r\nte: trailers\r\nupgrade: h2c\r\n"
    "x-forwarded-for: 1.2.3.4\r\nx-forwarded-host: evil\r\nforwarded: for=evil\r\nvia: 1.1 x\r\n"
    "cookie: a=b\r\nx-api-key: other\r\nx-tenant: 7\r\nx-priority: high\r\nopenai-organization: o\r\n"
    "accept-encoding: gzip, br\r\naccept: text/html\r\nuser-agent: curl\r\nx-request-id: mine\r\n"
    "proxy-authorization: Basic x\r\nkeep-alive: 5\r\ntrailer: x\r\nx-http-method-override: GET\r\n"
    f"range: bytes=0-1\r\ntraceparent: {TRACEPARENT}\r\ntracestate: a=1\r\n"
)


@pytest.mark.parametrize("is_stream", [False, True])
def test_case_75_the_engine_sees_our_headers_only(
    plane: DataPlaneProcess, engine: ScriptedEngine, is_stream: bool
) -> None:
    engine.reply(stream(*answer(["x"])) if is_stream else whole(chat_reply()))
    body = BODY[:-1] + b',"stream":true}' if is_stream else BODY
    reply = exchange(plane.port, request_bytes(body, headers=CLIENT_HEADERS))
    assert reply.status == 200
    request = engine.requests[0]
    assert dict(request.headers) == {
        "host": f"127.0.0.1:{engine.port}",
        "authorization": f"Bearer {ENGINE_SECRET}",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "x-request-id": reply.headers["x-request-id"],
        "traceparent": TRACEPARENT,
        "tracestate": "a=1",
        "content-length": str(len(request.body)),
    }
    assert len(request.headers) == 8
    assert reply.headers["x-request-id"] != "mine"


def test_a_replica_without_a_secret_gets_no_authorization(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(whole(chat_reply()))
    assert plane.chat(model="prefix").status_code == 200
    assert engine.requests[0].line == "POST /gw/v1/chat/completions HTTP/1.1"
    assert "authorization" not in engine.requests[0].header_names


@pytest.mark.parametrize("value", ["a\tb", "\u00e9", ""])
def test_odd_trace_headers_do_not_reach_the_engine(
    plane: DataPlaneProcess, engine: ScriptedEngine, value: str
) -> None:
    engine.reply(whole(chat_reply()))
    headers = f"{KEY}traceparent: {value}\r\n"
    assert exchange(plane.port, request_bytes(BODY, headers=headers)).status == 200
    assert engine.requests[0].header("traceparent") in (None, "")


def test_case_75_the_engines_own_headers_stay_inside(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    extra = "server: uvicorn\r\nset-cookie: a=b\r\nx-request-id: e\r\nconnection: keep-alive, x-a\r\nx-a: 1\r\n"
    engine.reply_once(whole(chat_reply(), headers=extra))
    engine.reply_once(stream(*answer(["x"])).replace(b"\r\n\r\n", f"\r\n{extra}\r\n".encode(), 1))
    for is_stream in (False, True):
        headers = plane.chat(stream=is_stream).headers
        assert not {"set-cookie", "x-a", "keep-alive"} & set(headers)
        assert headers.get("server") != "uvicorn"
        assert headers["x-request-id"].startswith("req_")


SMUGGLED = request_bytes(b"", method="GET", path="/v1/models/smuggled", headers=KEY)

DESYNC = {
    "two lengths": (f"content-length: {len(BODY)}\r\ncontent-length: 5\r\n", BODY),
    "length and chunked": (
        f"content-length: {len(BODY)}\r\ntransfer-encoding: chunked\r\n",
        b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
    ),
    "chunked and length": (
        "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
    ),
    "chunked twice": (
        "transfer-encoding: chunked, chunked\r\n",
        b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
    ),
    "chunked not last": ("transfer-encoding: chunked, gzip\r\n", BODY),
    "obfuscated": (f"transfer-encoding: xchunked\r\ncontent-length: {len(BODY)}\r\n", BODY),
    "signed length": (f"content-length: +{len(BODY)}\r\n", BODY),
    "length list": (f"content-length: {len(BODY)}, {len(BODY)}\r\n", BODY),
    "endless length": (f"content-length: {'9' * 5000}\r\n", BODY),
    "negative length": ("content-length: -1\r\n", BODY),
    "name with space": (f"content-length : {len(BODY)}\r\n", BODY),
}


@pytest.mark.parametrize(("framing", "body"), DESYNC.values(), ids=DESYNC.keys())
def test_case_75_ambiguous_framing_is_refused_or_read_one_way(
    plane: DataPlaneProcess, engine: ScriptedEngine, framing: str, body: bytes
) -> None:
    """What follows on the connection is never taken for part of it, nor the other way round."""
    engine.reply(whole(chat_reply()))
    with connect(plane.port) as client:
        client.sendall(request_bytes(b"", framing=framing) + body + SMUGGLED)
        first = read_reply(client)
        client.shutdown(socket.SHUT_WR)
        second = read_reply(client) if first.status == 200 else None
    assert first.status in (200, 400, 413), first
    for request in engine.requests:  # whole, once, with our framing
        assert request.body == BODY
        assert request.header("content-length") == str(len(BODY))
        assert request.header("transfer-encoding") is None
    assert len(engine.requests) == (1 if first.status == 200 else 0)
    if second is not None and second.status:
        assert second.status == 404
        assert second.error["code"] == "model_not_found"


def test_two_requests_at_once_are_answered_in_order(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply_once(whole(chat_reply("one")))
    engine.reply_once(whole(chat_reply("two")))
    with connect(plane.port) as client:
        client.sendall(request_bytes(BODY) * 2)
        assert b"one" in read_reply(client).body
        assert b"two" in read_reply(client).body


@pytest.mark.parametrize(
    "data", [b"GET\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"GET /health HTTP/9.9\r\n\r\n"]
)
def test_what_is_no_http_ends_its_own_connection_only(plane: DataPlaneProcess, data: bytes) -> None:
    with connect(plane.port) as client:
        client.sendall(data)
        client.settimeout(5)
        assert read_reply(client).status in (0, 400, 505)
    assert plane.get("/health").status_code == 200
