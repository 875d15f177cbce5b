"""Clients that leave or read slowly: the engine is told at once, the counts so far are kept."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from billing.usage.event import CloseRecord, RequestStatus, TokenUsage
from tests.factories.engine_replies import (
    STREAM_HEAD,
    answer,
    chat_reply,
    chunk,
    encode,
    piece,
    usage,
    whole,
)
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.processes import wait_for
from tests.fixtures.raw_http import connect, request_bytes
from tests.fixtures.scripted_engine import Hang, Pause, ScriptedEngine, Step
from tests.integration.dataplane.test_bodies import resident_mib

PROMPT_SECONDS = 1.0
MIB = 1024 * 1024

_clients: list[socket.socket] = []


@pytest.fixture(autouse=True)
def no_client_stays() -> Iterator[None]:
    """A test that fails half-way leaves no request open for those after it to count."""
    yield
    while _clients:
        _clients.pop().close()


def start(
    plane: DataPlaneProcess, *, path: str = "/v1/chat/completions", **body: Any
) -> socket.socket:
    """Send a request and leave its reply unread."""
    if "prompt" not in body:
        body["messages"] = [{"role": "user", "content": "Hi"}]
    client = connect(plane.port)
    _clients.append(client)
    client.sendall(request_bytes(encode({"model": "small", **body}), path=path))
    return client


def read_until(client: socket.socket, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        data = client.recv(65536)
        assert data, seen
        seen += data
    return seen


def leave(client: socket.socket, engine: ScriptedEngine, how: str) -> None:
    """End the client's connection; the engine must see its own end promptly."""
    left_at = time.monotonic()
    if how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    if how == "half":
        client.shutdown(socket.SHUT_WR)
    else:
        client.close()
    assert engine.requests[-1].wait_left() - left_at < PROMPT_SECONDS


def check_left(close: CloseRecord, counts: TokenUsage) -> None:
    assert (close.status, close.http_status) == (RequestStatus.CLIENT_CLOSED, 499)
    assert (close.usage, close.error_code) == (counts, "client_closed")


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("model", ["small", "alias"])
def test_case_17_leaving_in_mid_stream(
    plane: DataPlaneProcess, engine: ScriptedEngine, how: str, model: str
) -> None:
    words = [chunk("w ", counts=usage(30, number)) for number in range(1, 21)]
    engine.reply(STREAM_HEAD + b"".join(map(piece, words)), Hang())
    opened = plane.opened
    client = start(plane, model=model, stream=True)
    seen = b""
    while seen.count(b'"w "') < 20:
        seen += client.recv(65536)
    leave(client, engine, how)
    close = plane.last_close(opened)
    check_left(close, TokenUsage(30, None, 20, None))
    assert close.identity.route == model
    assert f"x-request-id: {close.identity.request_id}".encode() in seen
    assert close.first_token_at_us is not None


def test_leaving_a_stream_that_flows_on(plane: DataPlaneProcess, engine: ScriptedEngine) -> None:
    """The engine never stops by itself; what it had produced by then is what counts."""
    steps: list[Step] = [STREAM_HEAD]
    for number in range(1, 400):
        steps += [piece(chunk("w ", counts=usage(30, number))), Pause(0.01)]
    engine.reply(*steps, Hang())
    opened = plane.opened
    client = start(plane, stream=True)
    read_until(client, b'"w "')
    time.sleep(0.2)
    leave(client, engine, "close")
    close = plane.last_close(opened)
    produced = close.usage.output_tokens or 0
    check_left(close, TokenUsage(30, None, produced, None))
    assert 5 < produced < 200


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_case_19_leaving_before_the_first_byte(
    plane: DataPlaneProcess, engine: ScriptedEngine, is_stream: bool, how: str
) -> None:
    engine.reply(Hang())
    opened = plane.opened
    client = start(plane, stream=is_stream)
    engine.wait_request()
    leave(client, engine, how)
    check_left(plane.last_close(opened), TokenUsage())


def test_leaving_in_the_middle_of_a_whole_answer(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(whole(chat_reply())[:80], Hang())
    opened = plane.opened
    client = start(plane)
    engine.wait_request()
    time.sleep(0.1)
    leave(client, engine, "close")
    check_left(plane.last_close(opened), TokenUsage())


def test_leaving_with_nothing_but_the_role(plane: DataPlaneProcess, engine: ScriptedEngine) -> None:
    role = chunk(delta={"role": "assistant", "content": ""}, counts=usage(30, 0))
    engine.reply(STREAM_HEAD + piece(role), Hang())
    opened = plane.opened
    client = start(plane, stream=True)
    wait_for(lambda: engine.requests and engine.requests[-1].sent_bytes, "the role is sent", 5)
    time.sleep(0.2)  # nothing can be waited for: an opening without content is held back
    leave(client, engine, "close")
    close = plane.last_close(opened)
    check_left(close, TokenUsage(30, None, 0, None))
    assert close.first_token_at_us is None


def test_case_29_reasoning_counts_in_an_aborted_stream(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    details = {"completion_tokens_details": {"reasoning_tokens": 2}}
    engine.reply(
        STREAM_HEAD
        + piece(chunk(delta={"reasoning_content": "hm"}, counts=usage(9, 1)))
        + piece(chunk(delta={"reasoning": "hm"}, counts=usage(9, 2, **details))),
        Hang(),
    )
    opened = plane.opened
    client = start(plane, stream=True)
    read_until(client, b'"reasoning"')
    leave(client, engine, "close")
    close = plane.last_close(opened)
    check_left(close, TokenUsage(9, None, 2, 2))
    assert close.first_token_at_us is not None


def test_several_choices_of_an_aborted_stream_are_added_up(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """Each chunk counts only its own choice; one prompt is read once for all of them."""
    events = [chunk("a", index=at % 2, counts=usage(30, at // 2 + 1)) for at in range(7)]
    engine.reply(STREAM_HEAD + b"".join(map(piece, events)), Hang())
    opened = plane.opened
    client = start(plane, stream=True, n=2)
    seen = b""
    while seen.count(b'"a"') < 7:
        seen += client.recv(65536)
    leave(client, engine, "close")
    check_left(plane.last_close(opened), TokenUsage(30, None, 4 + 3, None))


def test_several_prompts_of_an_aborted_stream_are_added_up(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """Two prompts of 3 and 5 tokens, two choices each: indexes 0, 1 and 2, 3."""
    events = [
        {
            "id": "c",
            "choices": [{"index": at, "text": "a"}],
            "usage": usage(3 if at < 2 else 5, at + 1),
        }
        for at in range(4)
    ]
    frames = b"".join(piece(b"data: " + encode(each) + b"\n\n") for each in events)
    engine.reply(STREAM_HEAD + frames, Hang())
    opened = plane.opened
    client = start(plane, path="/v1/completions", stream=True, n=2, prompt=["x", "yy"])
    seen = b""
    while seen.count(b'"a"') < 4:
        seen += client.recv(65536)
    leave(client, engine, "close")
    check_left(plane.last_close(opened), TokenUsage(8, None, 10, None))


def sent_when_still(engine: ScriptedEngine) -> int:
    """Wait until the engine's reply has not moved for a second; return how far it came."""
    sent, still_since = 0, time.monotonic()
    while time.monotonic() < still_since + 1.0:
        time.sleep(0.05)
        if (now := engine.requests[0].sent_bytes) != sent:
            sent, still_since = now, time.monotonic()
    return sent


def test_a_slow_reader_slows_its_engine_and_fills_no_memory(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    # How much the kernel keeps between three processes differs (tcp_rmem, tcp_wmem): 27 MB were seen.
    text = "A" * 65_536
    total = 1_500
    events = [piece(chunk(text, counts=usage(5, number))) for number in range(1, total + 1)]
    engine.reply(STREAM_HEAD, *events, Hang())
    before = resident_mib(plane)
    opened = plane.opened
    client = start(plane, stream=True)
    read_until(client, b"AAAA")
    sent = sent_when_still(engine)
    assert sent < 64 * MIB  # of 98
    assert resident_mib(plane) - before < 24
    assert plane.get("/health").elapsed.total_seconds() < 0.5
    while client.recv(1 << 20).count(b'"completion_tokens"') == 0:
        if engine.requests[0].sent_bytes > sent + 1_000_000:
            break  # it flows again
    leave(client, engine, "close")
    close = plane.last_close(opened)
    assert close.status is RequestStatus.CLIENT_CLOSED
    assert 0 < (close.usage.output_tokens or 0) < total


def test_a_slow_reader_that_ends_its_side_is_not_waited_for(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """What it has not taken would keep its engine at work for as long as it takes nothing."""
    text = "A" * 65_536
    events = [piece(chunk(text, counts=usage(5, number))) for number in range(1, 1_501)]
    engine.reply(STREAM_HEAD, *events, Hang())
    opened = plane.opened
    client = start(plane, stream=True)
    read_until(client, b"AAAA")
    sent_when_still(engine)
    leave(client, engine, "half")
    assert plane.last_close(opened).status is RequestStatus.CLIENT_CLOSED


def test_a_slow_reader_is_not_the_engines_silence(
    hasty_plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """The client pauses for longer than the idle timeout; then it gets everything."""
    text = "A" * 65_536
    events = [piece(chunk(text, counts=usage(5, number))) for number in range(1, 301)]
    end = piece(chunk(finish="stop")) + piece(b"data: [DONE]\n\n") + b"0\r\n\r\n"
    engine.reply(STREAM_HEAD, *events, end)
    opened = hasty_plane.opened
    with start(hasty_plane, stream=True) as client:
        read_until(client, b"AAAA")
        time.sleep(1.5)
        seen = read_until_end(client)
    assert b"engine_timeout" not in seen[-1000:]
    assert b"[DONE]" in seen[-100:]
    close = hasty_plane.last_close(opened)
    assert (close.status, close.usage) == (RequestStatus.COMPLETED, TokenUsage(5, None, 300, None))


def read_until_end(client: socket.socket) -> bytes:
    parts = []
    while data := client.recv(1 << 20):
        parts.append(data)
        if data.endswith(b"0\r\n\r\n"):
            break
    return b"".join(parts)


def test_case_21_many_leave_at_once_and_health_stays_quick(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """Thirty streams with megabytes behind them are left in the same moment."""
    text = "A" * 65_536
    events = [piece(chunk(text, counts=usage(5, number))) for number in range(1, 33)]
    engine.reply(STREAM_HEAD + b"".join(events), Hang())
    opened = plane.opened
    clients = [start(plane, stream=True) for _ in range(30)]
    for client in clients:
        read_until(client, b"AAAA")
    for client in clients:
        client.close()
    slowest = 0.0
    for _ in range(10):
        slowest = max(slowest, plane.get("/health").elapsed.total_seconds())
        time.sleep(0.02)
    assert slowest < 1.0
    deadline = time.monotonic() + 5
    while plane.open_requests:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert plane.opened == opened + 30
    closes = plane.closes[-30:]
    assert {close.status for close in closes} == {RequestStatus.CLIENT_CLOSED}
    assert all((close.usage.output_tokens or 0) > 0 for close in closes)


def test_a_stream_is_settled_before_its_end_is_seen(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """The engine takes its time to end the reply; the record does not wait for that."""
    engine.reply(STREAM_HEAD + b"".join(map(piece, answer(["x"]))), Hang())
    opened = plane.opened
    with start(plane, stream=True) as client:
        read_until(client, b"[DONE]")
        closes = plane.closes
    assert (plane.opened, len(closes)) == (opened + 1, opened + 1)
    assert closes[-1].status is RequestStatus.COMPLETED


def test_a_kept_client_connection_serves_on_after_a_stream(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(whole(chat_reply()))
    for _ in range(3):
        reply = plane.chat(stream=True)
        assert json.loads(reply.content)["id"] == "chatcmpl-1"


def test_an_upload_that_is_broken_off_is_no_fault_of_ours(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    whole_request = request_bytes(encode({"model": "small", "messages": [], "pad": "x" * 5000}))
    before = plane.log.count("failed")
    for _ in range(3):
        client = connect(plane.port)
        client.sendall(whole_request[:-3000])
        time.sleep(0.1)
        client.close()
    engine.reply_once(whole(encode(chat_reply())))
    assert plane.chat().status_code == 200
    assert plane.log.count("failed") == before
