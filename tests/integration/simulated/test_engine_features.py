"""What the simulated engine has of vLLM beside text: cache, tools, adapters, sleep, start, many."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.vllm.metrics import EngineMetrics, parse_metrics
from backends.vllm.model_list import parse_model_list
from tests.fixtures.processes import REPOSITORY, wait_for
from tests.fixtures.simulated_engine import (
    RunningEngine,
    run_simulated_engine,
    run_simulated_fleet,
)

CHAT = "/v1/chat/completions"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}},
    "required": ["city", "unit"],
}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]


@pytest.fixture(scope="module")
def engine() -> Iterator[RunningEngine]:
    options = ("--step-ms", "2", "--step-ms-per-sequence", "0", "--wake-seconds", "0.2")
    with run_simulated_engine(*options, "--lora", "poet", "--seed", "5") as engine:
        yield engine


def body(text: str = "Hello", **members: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 5, **members}


def ask(engine: RunningEngine, text: str = "Hello", **members: Any) -> dict[str, Any]:
    reply = engine.client.post(CHAT, json=body(text, **members)).raise_for_status()
    answer: dict[str, Any] = reply.json()
    return answer


def stream(engine: RunningEngine, **members: Any) -> list[dict[str, Any]]:
    text = engine.client.post(CHAT, json=body(stream=True, **members)).raise_for_status().text
    *events, done = text.strip().split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


def read(engine: RunningEngine) -> EngineMetrics:
    return parse_metrics(engine.client.get("/metrics").content)


def test_the_metrics_page_is_read_to_the_right_figures(engine: RunningEngine) -> None:
    before = read(engine)
    text = "cached " * 300
    first, second = (ask(engine, text, max_tokens=7)["usage"] for _ in range(2))
    after = read(engine)
    cached = second["prompt_tokens_details"]["cached_tokens"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert 0 < cached < second["prompt_tokens"]
    assert cached % 16 == 0
    prompts = first["prompt_tokens"] + second["prompt_tokens"]
    assert after.prefix_queries == (before.prefix_queries or 0) + prompts
    assert after.prefix_hits == (before.prefix_hits or 0) + cached
    assert after.prompt_tokens == (before.prompt_tokens or 0) + prompts
    assert after.generation_tokens == (before.generation_tokens or 0) + 14
    assert after.requests_by_reason["length"] == before.requests_by_reason["length"] + 2
    assert (after.running, after.waiting, after.kv_usage) == (0, 0, 0.0)
    assert after.kv_capacity_tokens == 400_000
    assert after.is_asleep is False
    assert after.started_at == pytest.approx(time.time(), abs=300)
    assert engine.metrics()["time_to_first_token_seconds_count"] >= 2
    assert engine.metrics()["inter_token_latency_seconds_count"] >= 12
    engine.client.post("/reset_prefix_cache").raise_for_status()
    usage = ask(engine, text)["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0


def test_schemas_and_tools_are_answered_by_the_letter(engine: RunningEngine) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}
    choice = ask(engine, response_format=wanted, max_tokens=60)["choices"][0]
    assert json.loads(choice["message"]["content"]) == {"city": "simulated", "unit": "c"}
    assert choice["finish_reason"] == "stop"
    cut = ask(engine, response_format={"type": "json_object"}, max_tokens=2)["choices"][0]
    assert (cut["finish_reason"], cut["message"]["content"]) == ("length", '{"simula')
    tools: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required", "max_tokens": 60}
    choice = ask(engine, **tools)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == ""
    call = choice["message"]["tool_calls"][0]["function"]
    assert (call["name"], json.loads(call["arguments"])["unit"]) == ("get_weather", "c")
    deltas = [
        delta["tool_calls"][0]
        for chunk in stream(engine, **tools)
        if (delta := chunk["choices"][0]["delta"]).get("tool_calls")
    ]
    assert deltas[0]["function"] == {"name": "get_weather"}
    assert "".join(delta["function"]["arguments"] for delta in deltas[1:]) == call["arguments"]
    assert ask(engine, tools=TOOLS)["choices"][0]["message"]["content"].startswith("Simulated")
    named = {"type": "function", "function": {"name": "other"}}
    wrong = engine.client.post(CHAT, json=body(tools=TOOLS, tool_choice=named))
    assert wrong.status_code == 400


def test_several_choices_and_logprobs(engine: RunningEngine) -> None:
    reply = ask(engine, n=3, logprobs=True)
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert len(reply["choices"][0]["logprobs"]["content"]) == 5
    assert reply["usage"]["completion_tokens"] == 15
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = stream(engine, n=2, stream_options=options)
    assert [chunk["choices"][0]["delta"].get("role") for chunk in chunks[:2]] == ["assistant"] * 2
    assert chunks[-1]["usage"]["completion_tokens"] == 10
    ends = [c["choices"][0] for c in chunks[:-1] if c["choices"][0]["finish_reason"]]
    assert sorted(end["index"] for end in ends) == [0, 1]


def test_adapters(engine: RunningEngine) -> None:
    facts = parse_model_list(engine.client.get("/v1/models").content)
    assert facts is not None
    assert (facts.models, facts.adapters, facts.context_tokens) == (
        ("simulated",),
        ("poet",),
        32_768,
    )
    load, unload = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
    clerk = {"lora_name": "clerk", "lora_path": "adapters/clerk"}
    assert engine.client.post(load, json=clerk).status_code == 200
    assert engine.client.post(load, json=clerk).status_code == 400
    assert ask(engine, model="clerk")["model"] == "clerk"
    assert "clerk" in read(engine).adapters
    assert engine.client.post(unload, json=clerk).status_code == 200
    assert engine.client.post(unload, json=clerk).status_code == 404
    assert engine.client.post(CHAT, json=body(model="clerk")).status_code == 404


def test_tokenize_counts_as_usage_does(engine: RunningEngine) -> None:
    messages = body("How many tokens is this?")["messages"]
    told = engine.client.post("/tokenize", json={"messages": messages}).json()
    assert told["count"] == len(told["tokens"])
    assert told["count"] == ask(engine, "How many tokens is this?")["usage"]["prompt_tokens"]
    assert engine.client.get("/load").json() == {"server_load": 0}


def test_sleep_and_wake(engine: RunningEngine) -> None:
    with ThreadPoolExecutor(2) as pool:
        made = read(engine).generation_tokens or 0
        long = pool.submit(ask, engine, max_tokens=20_000)
        wait_for(lambda: (read(engine).generation_tokens or 0) > made, "it to run")
        told = engine.client.post("/sleep?level=1").json()
        assert told == {"status": "sleeping", "level": 1}
        ended = long.result(10)
        assert ended["choices"][0]["finish_reason"] == "abort"
        assert 0 < ended["usage"]["completion_tokens"] < 20_000
        assert read(engine).is_asleep is True
        assert engine.client.get("/is_sleeping").json() == {"is_sleeping": True}
        held = pool.submit(ask, engine)
        wait_for(lambda: read(engine).waiting == 1, "the request to wait inside")
        began_at = time.monotonic()
        told = engine.client.post("/wake_up").json()
        assert told == {"status": "awake", "tags": None}
        assert time.monotonic() - began_at >= 0.2
        assert held.result(10)["usage"]["completion_tokens"] == 5
    assert read(engine).is_asleep is False


def test_sleep_waits_for_what_runs_and_wakes_in_parts(engine: RunningEngine) -> None:
    with ThreadPoolExecutor(1) as pool:
        long = pool.submit(ask, engine, max_tokens=150)
        wait_for(lambda: read(engine).running == 1, "it to run")
        engine.client.post("/sleep?level=2&mode=wait").raise_for_status()
        assert long.result(10)["usage"]["completion_tokens"] == 150
    engine.client.post("/wake_up?tags=weights").raise_for_status()
    engine.client.post("/collective_rpc", json={"method": "reload_weights"}).raise_for_status()
    assert engine.client.get("/is_sleeping").json() == {"is_sleeping": True}
    engine.client.post("/wake_up?tags=kv_cache").raise_for_status()
    assert engine.client.get("/is_sleeping").json() == {"is_sleeping": False}


def test_a_cold_start_and_a_sleeper_that_refuses() -> None:
    options = ("--start-seconds", "1.5", "--refuse-asleep", "--step-ms", "1")
    with run_simulated_fleet(1, *options) as fleet:
        engine = fleet.engines[0]
        assert engine.client.get("/health").status_code == 503
        assert engine.client.post(CHAT, json=body()).status_code == 503
        wait_for(lambda: engine.client.get("/health").status_code == 200, "it to have started")
        assert ask(engine)["usage"]["completion_tokens"] == 5
        engine.client.post("/sleep").raise_for_status()
        assert engine.client.post(CHAT, json=body()).status_code == 503


def read_process(pid: int) -> tuple[float, float]:
    """Return its CPU seconds and resident MB."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return (int(fields[11]) + int(fields[12])) / 100, pages * 4096 / 1e6


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_two_hundred_replicas_in_one_process() -> None:
    with run_simulated_fleet(200) as fleet:
        pid = fleet.process.pid
        spent, resident = read_process(pid)
        assert spent < 3.0  # seconds of CPU to start; about half of one on an idle machine
        assert resident < 150
        with httpx.Client() as client:
            for engine in (fleet.engines[0], fleet.engines[199]):
                reply = client.post(engine.url + CHAT, json=body()).raise_for_status()
                assert reply.json()["usage"]["completion_tokens"] == 5
        before, _ = read_process(pid)
        wait_until = time.monotonic() + 1.0
        wait_for(lambda: time.monotonic() >= wait_until, "a second to pass")
        assert read_process(pid)[0] - before < 0.1  # idle


def test_the_command_prints_addresses_and_stops_at_ctrl_c(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    command = [
        sys.executable,
        "-m",
        "gateway.cli.main",
        "simulate",
        "--replicas",
        "3",
        "--port",
        "0",
    ]
    process = subprocess.Popen(
        [*command, "--ready-file", str(ready), "--profile", "large", "--max-num-seqs", "4"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=REPOSITORY,
    )
    try:
        wait_for(ready.exists, "the ready file")
        told = json.loads(ready.read_text())
        assert told["pid"] == process.pid
        with httpx.Client() as client:
            for url in told["base_urls"]:
                assert client.get(f"{url}/v1/models").status_code == 200
            page = client.get(told["base_urls"][0] + "/metrics").content
        assert parse_metrics(page).kv_capacity_tokens == 420_000
    finally:
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=10)
    assert process.returncode == 0
    assert printed.split() == told["base_urls"]
