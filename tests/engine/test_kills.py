"""vLLM's process that has the model dies, or hangs, with requests in it."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from billing.usage.event import RequestStatus
from tests.engine.answers import CHAT, ask_gateway, chunks_of
from tests.engine.conftest import BOTH, FIRST, IMPATIENT, Pair
from tests.factories.snapshots import SECRET
from tests.fixtures.data_plane import bearer
from tests.fixtures.processes import wait_for

pytestmark = pytest.mark.engine

BODY = {
    "messages": [{"role": "user", "content": "Write a very long story."}],
    "max_tokens": 24,
    "ignore_eos": True,
    "temperature": 0,
}
STREAM = {**BODY, "stream": True}


def test_killed_in_mid_stream(pair: Pair) -> None:
    with pair.plane.client.stream(
        "POST",
        pair.plane.url + CHAT,
        json={**STREAM, "max_tokens": 1800, "model": FIRST},
        headers=bearer(SECRET),
    ) as reply:
        assert reply.headers["x-forebay-replica"] == "rep_a_first"
        datas = (line.removeprefix("data: ") for line in reply.iter_lines() if line)
        seen = [next(datas) for _ in range(8)]
        os.kill(pair.a.core_pid, signal.SIGKILL)
        rest = list(datas)
    assert "[DONE]" not in rest
    error = json.loads(rest[-1])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert all("error" not in json.loads(data) for data in [*seen, *rest[:-1]])
    close = pair.plane.close_of(reply)
    assert (close.status, close.http_status) == (RequestStatus.TRUNCATED, 200)
    assert close.error_code == error["code"]
    assert close.replica_id == "rep_a_first"
    pieces = sum(bool(json.loads(data)["choices"][0]["delta"].get("content")) for data in seen)
    assert (close.usage.output_tokens or 0) >= pieces
    assert close.usage.input_tokens
    # The other one serves at once, whatever the prober has seen by then.
    for _ in range(3):
        again = ask_gateway(pair, BODY)
        assert again.status_code == 200
        assert again.headers["x-forebay-replica"] == "rep_b"
    pair.a.wait_for_state("ready")
    assert "ready" in pair.a.said


def test_killed_before_content_another_answers(pair: Pair) -> None:
    """A whole answer and a stream at once, accepted by the first, answered by the second."""
    plain = ask_gateway(pair, BODY, route=FIRST)
    assert plain.headers["x-forebay-replica"] == "rep_a_first"
    pid = pair.a.core_pid
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(ask_gateway, pair, body, route=FIRST) for body in (BODY, STREAM)]
        try:
            wait_for(lambda: pair.a.in_flight == 2, "both are in the first", 30)
        finally:
            os.kill(pid, signal.SIGKILL)
        whole, stream = (each.result(120) for each in asked)
    for reply in (whole, stream):
        assert reply.status_code == 200, reply.text
        assert reply.headers["x-forebay-replica"] == "rep_b_first"
        close = pair.plane.close_of(reply)
        assert (close.status, close.attempts) == (RequestStatus.COMPLETED, 2)
        assert close.replica_id == "rep_b_first"
        assert close.usage == pair.plane.close_of(plain).usage
    assert whole.json()["choices"] == plain.json()["choices"]
    text = "".join(
        chunk["choices"][0]["delta"].get("content") or ""
        for chunk in chunks_of(stream, model=FIRST)
    )
    assert text == plain.json()["choices"][0]["message"]["content"]


def test_a_hung_engine_is_left_for_the_other(pair: Pair) -> None:
    """Nothing before the first token's limit: another is asked, and the hung one's work ended."""
    pid = pair.a.core_pid
    os.kill(pid, signal.SIGSTOP)
    try:
        reply = ask_gateway(pair, STREAM, route=IMPATIENT)
        assert reply.status_code == 200, reply.text
        assert reply.headers["x-forebay-replica"] == "rep_b_impatient"
        assert pair.plane.close_of(reply).attempts == 2
    finally:
        os.kill(pid, signal.SIGCONT)
    chunks_of(reply, model=IMPATIENT)
    pair.a.wait_until_idle()


def test_both_dead_is_an_honest_error(pair: Pair) -> None:
    """An HTTP status in the error shape, of a stream too; then both are back by themselves."""
    for engine in pair.engines:
        os.kill(engine.core_pid, signal.SIGKILL)
    for engine in pair.engines:
        wait_for(lambda: not _is_up(engine.client, engine.url), "its API server ends", 60)  # noqa: B023
    for body in (BODY, STREAM):
        reply = ask_gateway(pair, body)
        assert reply.status_code in (502, 503), reply.text
        assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
        assert pair.plane.close_of(reply).status is RequestStatus.FAILED
    for engine in pair.engines:  # its agent looks now and then
        wait_for(lambda: engine.report()["state"] != "ready", "its agent has seen it end", 60)  # noqa: B023
    pair.wait_until_ready()
    assert ask_gateway(pair, BODY, route=BOTH).status_code == 200


def _is_up(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(f"{url}/health").is_success
    except httpx.TransportError:
        return False
