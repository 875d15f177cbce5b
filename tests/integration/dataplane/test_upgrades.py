"""A wish for another protocol is passed over (RFC 9110 section 7.8); an early refusal is seen."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator

import pytest

from tests.factories.engine_replies import chat_reply, encode, whole
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.raw_http import connect, exchange, read_reply, request_bytes
from tests.fixtures.scripted_engine import ScriptedEngine

BODY = encode({"model": "small", "messages": [{"role": "user", "content": "Hi"}]})
AUTHORIZED = "authorization: Bearer fb-test-good\r\n"
UPGRADES = {
    "h2c": "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n",
    "websocket": "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n",
}
MIB = 1024 * 1024


@pytest.mark.parametrize("wish", UPGRADES)
def test_an_upgrade_is_passed_over(
    plane: DataPlaneProcess, engine: ScriptedEngine, wish: str
) -> None:
    """As java.net.http asks first of all, with a body by length or in chunks; twice, pipelined."""
    engine.reply(whole(chat_reply()))
    headers = AUTHORIZED + UPGRADES[wish]
    by_length = request_bytes(BODY, headers=headers)
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    in_chunks = request_bytes(b"", headers=headers, framing="transfer-encoding: chunked\r\n")
    with connect(plane.port) as client:
        client.sendall(by_length + in_chunks[:-5])  # the second head is cut
        assert read_reply(client).status == 200
        client.sendall(in_chunks[-5:] + chunks)
        assert read_reply(client).status == 200
        client.sendall(request_bytes(BODY))  # and the connection is kept
        assert read_reply(client).status == 200
    assert [request.body for request in engine.requests] == [BODY] * 3
    for request in engine.requests:
        assert not {"upgrade", "http2-settings"} & set(request.header_names)
    headers = "connection: upgrade\r\nupgrade: h2c\r\n"
    got = request_bytes(b"", method="GET", path="/v1/chat/completions", headers=headers, framing="")
    assert exchange(plane.port, got).status == 405


@pytest.mark.parametrize("target", ["example.com:443", "/v1/chat/completions"])
def test_connect_is_no_method_of_ours(plane: DataPlaneProcess, target: str) -> None:
    head = f"CONNECT {target} HTTP/1.1\r\nhost: example.com:443\r\n\r\n".encode()
    with connect(plane.port) as client:
        client.sendall(head + b"\x16\x03\x01")
        reply = read_reply(client)
    assert (reply.status, reply.error["code"]) == (405, "method_not_allowed")
    assert reply.headers["allow"] == "GET, HEAD, POST"
    assert reply.headers["connection"] == "close"


def test_an_unreadable_upload_behind_an_upgrade_is_told(plane: DataPlaneProcess) -> None:
    framing = "transfer-encoding: chunked\r\n"
    head = request_bytes(b"", headers=AUTHORIZED + UPGRADES["h2c"], framing=framing)
    reply = exchange(plane.port, head + b"zz\r\n")
    assert (reply.status, reply.error["code"]) == (400, "malformed_http")


def pieces(count: int) -> Iterator[bytes]:
    yield b'{"model":"small"'
    for _ in range(count):
        yield b" " * MIB


@pytest.mark.parametrize(
    ("secret", "is_chunked", "status"),
    [("fb-test-good", False, 413), ("fb-test-good", True, 413), ("fb-wrong", False, 401)],
)
def test_a_client_that_sends_all_before_it_reads_sees_the_refusal(
    plane: DataPlaneProcess, engine: ScriptedEngine, secret: str, is_chunked: bool, status: int
) -> None:
    """Python's own client, and 40 MB where 16 MiB are taken."""
    client = http.client.HTTPConnection("127.0.0.1", plane.port, timeout=20)
    headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
    body = pieces(40) if is_chunked else b" " * (40 * MIB)
    client.request("POST", "/v1/chat/completions", body, headers, encode_chunked=is_chunked)
    reply = client.getresponse()
    assert reply.status == status
    assert json.loads(reply.read())["error"]["code"] in {"body_too_large", "invalid_api_key"}
    client.close()
    assert engine.requests == []
