"""Request bodies: what the engine gets is what was sent; sizes, encodings, slowness."""

from __future__ import annotations

import gzip
import json
import re
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.factories.engine_replies import chat_reply, encode, whole
from tests.factories.snapshots import ENGINE_MODEL
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.raw_http import connect, exchange, read_reply, request_bytes
from tests.fixtures.scripted_engine import ScriptedEngine

MIB = 1024 * 1024
GOOD: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "Hi"}]}

VENDOR_BODY = (
    b'{ "model": "%b",\n "messages": [{"role":"user","content":"\\u00fc \xc3\xbc \\/ \\ud83d\\ude42"}],'
    b' "seed": 9007199254740993, "min_p":1e-7, "top_k":5, "big":123456789012345678901234567890,'
    b' "float": 1.0, "chat_template_kwargs": {"enable_thinking": false},'
    b' "guided_json":{"a":{"b":[1,null,1E400]}}, "structured_outputs" : {"x": "\\u0000"},'
    b' "x_vendor":{"a":[1, null, 1e-7 ],"a":2}, "\xc3\xa9":"\xf0\x9f\x99\x82", "stream": %b}'
)


@pytest.fixture
def answering(plane: DataPlaneProcess, engine: ScriptedEngine) -> Iterator[DataPlaneProcess]:
    engine.reply(whole(chat_reply()))
    yield plane
    for request in engine.requests:
        json.loads(request.body)


def raw_members(body: bytes) -> dict[str, str]:
    """Return each member's exact text (the test's own little scanner)."""
    text = body.decode()
    decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
    members: dict[str, str] = {}
    at = text.index("{") + 1
    while True:
        while text[at] in " \n,":
            at += 1
        if text[at] == "}":
            return members
        name, at = decoder.raw_decode(text, at)
        at = text.index(":", at) + 1
        while text[at] in " \n":
            at += 1
        _, end = decoder.raw_decode(text, at)
        members[name] = text[at:end]
        at = end


def test_case_60_an_unchanged_body_is_the_same_bytes(
    answering: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    body = VENDOR_BODY % (b"small", b"false")
    assert answering.post(body).status_code == 200
    assert engine.requests[0].body == body


@pytest.mark.parametrize("is_stream", [b"true", b"false"])
def test_case_60_what_we_do_not_set_keeps_its_exact_text(
    answering: DataPlaneProcess, engine: ScriptedEngine, is_stream: bytes
) -> None:
    body = VENDOR_BODY % (b"alias", is_stream)
    assert answering.post(body).status_code == 200
    sent, got = raw_members(body), raw_members(engine.requests[0].body)
    assert got.pop("model") == json.dumps(ENGINE_MODEL)
    if is_stream == b"true":
        assert json.loads(got.pop("stream_options")) == {
            "include_usage": True,
            "continuous_usage_stats": True,
        }
    sent.pop("model")
    assert got == sent
    assert list(got) == list(sent)


ODD_MESSAGES: list[Any] = [
    [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function"}]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
    ],
    [{"role": "assistant", "content": ""}],
    [{"role": "assistant"}],
    [{"role": "developer", "content": "x"}],
    [{"role": "anything", "content": 3}],
    [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "x"},
                {"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}},
            ],
        }
    ],
    [{"role": "user", "name": "n", "content": "x", "reasoning_content": "y", "extra": {"z": []}}],
    [],
]


@pytest.mark.parametrize("messages", ODD_MESSAGES, ids=lambda messages: str(messages)[:50])
def test_case_62_every_shape_of_message_is_the_engines_to_judge(
    answering: DataPlaneProcess, engine: ScriptedEngine, messages: Any
) -> None:
    assert answering.chat(messages=messages).status_code == 200
    assert json.loads(engine.requests[0].body)["messages"] == messages


@pytest.mark.parametrize(
    "prompt", ["x", "", ["a", "b"], [1, 2, 3], [[1, 2], [3]], [], None], ids=str
)
def test_every_shape_of_prompt_passes(
    answering: DataPlaneProcess, engine: ScriptedEngine, prompt: Any
) -> None:
    body = encode({"model": "small", "prompt": prompt})
    assert answering.post(body, path="/v1/completions").status_code == 200
    assert engine.requests[0].body == body
    assert engine.requests[0].line == "POST /v1/completions HTTP/1.1"


@pytest.mark.parametrize("model", [b"small", b"alias"])
def test_integers_written_as_floats_reach_the_engine_as_they_are(
    answering: DataPlaneProcess, engine: ScriptedEngine, model: bytes
) -> None:
    body = b'{"model":"%b","messages":[],"max_tokens":100.0,"n":1e0,"seed":7.0}' % model
    assert answering.post(body).status_code == 200
    sent, got = raw_members(body), raw_members(engine.requests[0].body)
    assert {**sent, "model": got["model"]} == got
    refused = answering.post(body.replace(b"100.0", b"100.5"))
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "max_tokens")


def test_case_73_nothing_in_a_request_chooses_where_it_goes(
    answering: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    evil = {
        "api_base": "http://169.254.169.254/",
        "base_url": answering.dead_url,
        "extra_headers": {"x-evil": "1"},
        "extra_body": {"api_base": answering.dead_url},
        "timeout": 1e9,
    }
    body = encode({**GOOD, **evil})
    reply = answering.post(
        body, x_forwarded_host="evil.example", x_forwarded_for="1.2.3.4", forwarded="host=evil"
    )
    assert reply.status_code == 200
    request = engine.requests[0]
    assert request.body == body  # opaque JSON, for the engine to ignore
    assert request.header("host") == f"127.0.0.1:{engine.port}"
    data = request_bytes(encode(GOOD)).replace(b"host: gateway", b"host: evil.example")
    assert exchange(answering.port, data).status == 200
    assert engine.requests[1].header("host") == f"127.0.0.1:{engine.port}"
    assert answering.chat(model="http://h/x").status_code == 404
    assert answering.chat(model=answering.dead_url).status_code == 404


def big_body(size: int) -> bytes:
    start = b'{"model":"alias","messages":[{"role":"user","content":"'
    return start + b"A" * (size - len(start) - 4) + b'"}]}'


def chunked(body: bytes, size: int) -> bytes:
    pieces = (body[at : at + size] for at in range(0, len(body), size))
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in pieces) + b"0\r\n\r\n"


def test_case_65_12_mib_pass_by_length_and_in_chunks(
    answering: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    body = big_body(12 * MIB)
    assert answering.post(body).status_code == 200
    data = request_bytes(b"", framing="transfer-encoding: chunked\r\n") + chunked(body, 100_000)
    assert exchange(answering.port, data).status == 200
    for request in engine.requests:
        assert len(request.body) == len(body) - len("alias") + len(ENGINE_MODEL)


@pytest.mark.parametrize("framing", ["length", "chunked", "both"])
def test_case_65_over_the_limit_is_a_413_before_all_is_read(
    plane: DataPlaneProcess, engine: ScriptedEngine, framing: str
) -> None:
    """Of 200 MiB declared or coming, a part is read and nothing kept; its answer is there at once."""
    opened = plane.opened
    lines = {
        "length": f"content-length: {200 * MIB}\r\n",
        "chunked": "transfer-encoding: chunked\r\n",
        "both": "content-length: 64\r\ntransfer-encoding: chunked\r\n",
    }[framing]
    piece = b"%x\r\n%b\r\n" % (MIB, b" " * MIB)
    sent = 0
    with connect(plane.port) as client:
        client.sendall(request_bytes(b"", framing=lines))
        if framing != "length":
            client.settimeout(0.5)
            try:
                while sent < 200:
                    client.sendall(piece)
                    sent += 1
            except OSError:
                pass  # the gateway reads no more
            client.settimeout(5)
        reply = read_reply(client)
    if framing == "both" and reply.status == 400:
        return  # a server may refuse both at once, and this one may start to
    assert (reply.status, reply.error["code"]) == (413, "body_too_large")
    assert sent < 100  # 16 are taken, then 64 dropped for clients that send all before they read
    assert engine.requests == []
    assert plane.opened == opened


def test_case_66_gzip_is_unpacked(answering: DataPlaneProcess, engine: ScriptedEngine) -> None:
    body = encode(GOOD)
    for encoding in ("gzip", "GZIP", "identity"):
        sent = body if encoding == "identity" else gzip.compress(body)
        assert answering.post(sent, content_encoding=encoding).status_code == 200
    assert {request.body for request in engine.requests} == {body}
    assert all(request.header("content-encoding") is None for request in engine.requests)


def test_case_65_a_gzip_bomb_stays_packed(plane: DataPlaneProcess, engine: ScriptedEngine) -> None:
    packer = zlib.compressobj(9, wbits=31)
    zeros = b"\0" * MIB
    bomb = b"".join(packer.compress(zeros) for _ in range(256)) + packer.flush()
    before = peak_mib(plane)
    reply = plane.post(bomb, content_encoding="gzip")
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")
    assert peak_mib(plane) - before < 64
    assert engine.requests == []


def test_case_66_what_is_no_gzip_is_told(plane: DataPlaneProcess) -> None:
    packed = gzip.compress(encode(GOOD))
    for body in (b"{}", packed[:-9], b"", packed * 2, packed + b"\0"):
        reply = plane.post(body, content_encoding="gzip")
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "malformed_gzip")


def test_case_65_a_slow_body_holds_up_nobody(
    answering: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    body = encode(GOOD)
    opened = answering.opened
    with connect(answering.port) as slow:
        slow.sendall(request_bytes(body)[: -len(body) // 2])
        started = time.monotonic()
        assert answering.chat().status_code == 200
        assert time.monotonic() - started < 1
        assert answering.opened == opened + 1  # not admitted before its body is whole
        for at in range(len(body) - len(body) // 2 - 1, len(body)):
            slow.sendall(body[at : at + 1])
        assert read_reply(slow).status == 200
    assert engine.requests[1].body == body


def test_a_byte_order_mark_is_passed_over(
    answering: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    body = encode(GOOD)
    for sent in (b"\xef\xbb\xbf" + body, gzip.compress(b"\xef\xbb\xbf" + body)):
        encoding = "identity" if sent.endswith(body) else "gzip"
        assert answering.post(sent, content_encoding=encoding).status_code == 200
    assert [request.body for request in engine.requests] == [body, body]


def test_a_client_that_leaves_in_its_body_leaves_nothing(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    opened = plane.opened
    for framing in ("content-length: 1000\r\n", "transfer-encoding: chunked\r\n"):
        with connect(plane.port) as client:
            client.sendall(request_bytes(b"", framing=framing) + b"3e8\r\n{")
    time.sleep(0.2)
    assert plane.opened == opened
    assert engine.requests == []
    assert plane.get("/health").status_code == 200


def test_expect_100_continue(answering: DataPlaneProcess, engine: ScriptedEngine) -> None:
    body = encode(GOOD)
    data = request_bytes(
        body, headers="authorization: Bearer fb-test-good\r\nexpect: 100-continue\r\n"
    )
    with connect(answering.port) as client:
        client.sendall(data[: -len(body)])
        assert client.recv(1000).startswith(b"HTTP/1.1 100")
        client.sendall(body)
        assert read_reply(client).status == 200
    assert "expect" not in engine.requests[0].header_names


def peak_mib(plane: DataPlaneProcess) -> float:
    """Return the most that the plane's worker ever held in memory."""
    (pid,) = plane.worker_pids()
    (line,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(line) / 1024


def resident_mib(plane: DataPlaneProcess) -> float:
    """Return what the plane's worker holds in memory."""
    (pid,) = plane.worker_pids()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / MIB
