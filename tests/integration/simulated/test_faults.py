"""Faults on demand, as clients and probes meet them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from backends.vllm.metrics import parse_metrics
from tests.fixtures.processes import wait_for
from tests.fixtures.simulated_engine import RunningEngine, RunningFleet, run_simulated_fleet

CHAT = "/v1/chat/completions"
OPTIONS = ("--step-ms", "5", "--step-ms-per-sequence", "0")


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningFleet]:
    with run_simulated_fleet(2, *OPTIONS) as fleet:
        yield fleet


@pytest.fixture
def engine(fleet: RunningFleet) -> Iterator[RunningEngine]:
    engine = fleet.engines[0]
    yield engine
    engine.set_faults(None)
    wait_for(lambda: not engine.metrics()["num_requests_running"], "the engine to be idle")


def body(**members: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "x" * 370}]
    return {"model": "simulated", "messages": messages, "max_tokens": 5, **members}


def post(engine: RunningEngine, **members: Any) -> httpx.Response:
    return engine.client.post(CHAT, json=body(**members))


def test_every_second_request(engine: RunningEngine) -> None:
    engine.set_faults({"every": 2, "status": 429, "retry_after_seconds": 7})
    replies = [post(engine) for _ in range(4)]
    assert [reply.status_code for reply in replies] == [200, 429, 200, 429]
    assert [reply.headers.get("retry-after") for reply in replies] == [None, "7", None, "7"]
    told = engine.client.get("/faults").json()
    assert (told["seen"], told["struck"]) == ({"generation": 4}, {"generation": 2})
    assert told["faults"]["status"] == 429


def test_a_fault_ends_after_its_count_or_its_time(engine: RunningEngine) -> None:
    engine.set_faults({"status": 500, "count": 2})
    assert [post(engine).status_code for _ in range(3)] == [500, 500, 200]
    engine.set_faults({"status": 500, "seconds": 0.5})
    assert post(engine).status_code == 500
    wait_for(lambda: post(engine).status_code == 200, "the fault to end")
    assert engine.client.get("/faults").json()["faults"] is None


def test_a_delay(engine: RunningEngine) -> None:
    engine.set_faults({"delay_ms": 300.0})
    began_at = time.monotonic()
    post(engine, max_tokens=1).raise_for_status()
    assert time.monotonic() - began_at >= 0.3


def test_an_engine_that_is_slow(engine: RunningEngine) -> None:
    engine.set_faults({"slow": 20})
    began_at = time.monotonic()
    post(engine).raise_for_status()
    assert time.monotonic() - began_at >= 0.5  # 5 steps of 5 ms, 20 times as long


def receive(engine: RunningEngine, is_stream: bool, into: bytearray, wait: float = 10) -> None:
    with engine.client.stream("POST", CHAT, json=body(stream=is_stream), timeout=wait) as reply:
        for data in reply.iter_raw():
            into += data


@pytest.mark.parametrize(("after", "is_stream"), [(0, True), (3, True), (3, False), (5, True)])
def test_a_connection_that_breaks(engine: RunningEngine, after: int, is_stream: bool) -> None:
    engine.set_faults({"cut_after_tokens": after})
    received = bytearray()
    with pytest.raises(httpx.TransportError):
        receive(engine, is_stream, received)
    assert received.count(b'"delta":{"content":') == (min(after, 4) if is_stream else 0)
    assert b"[DONE]" not in received


@pytest.mark.parametrize("after", [0, 3])
def test_a_stream_that_falls_silent(engine: RunningEngine, after: int) -> None:
    engine.set_faults({"stall_after_tokens": after})
    received = bytearray()
    with pytest.raises(httpx.ReadTimeout):
        receive(engine, True, received, wait=0.4)
    assert received.count(b'"delta":{"content":') == after
    engine.set_faults({"hang": True})
    with pytest.raises(httpx.ReadTimeout):
        receive(engine, True, received, wait=0.2)


@pytest.mark.parametrize("after", [0, 3])
def test_an_error_inside_a_stream(engine: RunningEngine, after: int) -> None:
    engine.set_faults({"error_after_tokens": after})
    *chunks, last, done = post(engine, stream=True).text.strip().split("\n\n")
    assert done == "data: [DONE]"  # as vLLM does
    assert '"error":{"message":"EngineCore encountered an issue' in last
    assert len(chunks) == 1 + after
    assert '"role":"assistant"' in chunks[0]
    assert post(engine).status_code == 500


def test_garbage(engine: RunningEngine) -> None:
    engine.set_faults({"garbage": "http"})
    with pytest.raises(httpx.RemoteProtocolError):
        post(engine)
    engine.set_faults({"garbage": "json"})
    with pytest.raises(ValueError, match="Expecting value"):
        post(engine).json()
    engine.set_faults({"garbage": "sse"})
    assert '{"id":"simulated","choices":[{]}' in post(engine, stream=True).text


def test_an_engine_that_drains_says_that_it_is_well(engine: RunningEngine) -> None:
    engine.set_faults({"drain": True})
    assert engine.client.get("/health").status_code == 200
    reply = post(engine)
    assert reply.status_code == 500
    assert "after shutdown" in reply.json()["error"]["message"]


def test_pages(engine: RunningEngine) -> None:
    engine.set_faults({"health_status": 503, "health_delay_ms": 200, "metrics": "missing"})
    began_at = time.monotonic()
    assert engine.client.get("/health").status_code == 503
    assert time.monotonic() - began_at >= 0.2
    assert engine.client.get("/metrics").status_code == 404
    assert post(engine).status_code == 200
    engine.set_faults({"metrics": "garbage"})
    assert parse_metrics(engine.client.get("/metrics").content).is_empty


def can_connect(engine: RunningEngine) -> bool:
    try:
        engine.client.get("/health")
    except httpx.TransportError:
        return False
    return True


def test_an_engine_that_refuses_connections(fleet: RunningFleet) -> None:
    refusing = fleet.engines[1]
    with httpx.stream(
        "POST", refusing.url + CHAT, json=body(stream=True, max_tokens=10_000)
    ) as reply:
        lines = reply.iter_lines()
        next(lines)
        fleet.set_faults(1, {"refuse": True})
        with pytest.raises(httpx.TransportError):
            list(lines)
    assert not can_connect(refusing)
    assert can_connect(fleet.engines[0])
    fleet.set_faults(1, None)
    wait_for(lambda: can_connect(refusing), "its port to be open")
    refusing.set_faults({"refuse": True, "seconds": 0.3})
    wait_for(lambda: not can_connect(refusing), "its port to be closed")
    wait_for(lambda: can_connect(refusing), "its port to be open again")
