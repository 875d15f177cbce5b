"""Engines as their probes see them."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fixtures.control_api import ControlApi

TODAY = """# HELP vllm:num_requests_running Number of requests
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a \\"b} c"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{model_name="m"} 2
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:kv_cache_usage_perc{engine="1"} 0.25
not a sample at all {{{
vllm:broken x
"""
YESTERDAY = "vllm:num_requests_running 0\nvllm:gpu_cache_usage_perc 0.125\n"

Respond = Callable[[str, dict[str, str]], tuple[int, str]]


@asynccontextmanager
async def engine(respond: Respond) -> AsyncIterator[str]:
    """Serve ``respond(path, headers)`` on the loopback; yield the base address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                name.lower(): value
                for name, _, value in (line.partition(": ") for line in head[1:] if line)
            }
            status, body = respond(head[0].split()[1], headers)
            data = body.encode()
            writer.write(
                b"HTTP/1.1 %d X\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
                % (status, len(data), data)
            )
            await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


async def add_engine(api: ControlApi, name: str, base_url: str, **body: str) -> None:
    deployment = await api.post("/deployments", name=name, engine_model=f"model-of-{name}")
    await api.post(f"/deployments/{deployment['id']}/replicas", base_url=base_url, **body)


async def test_a_ready_engine_shows_its_figures(api: ControlApi) -> None:
    async with engine(lambda path, _: (200, TODAY if path == "/metrics" else "")) as base_url:
        await add_engine(api, "a", base_url)
        (row,) = (await api.get("/engines"))["data"]
    assert row["state"] == "ready"
    assert (row["running"], row["waiting"], row["kv_cache_usage"]) == (4, 2, 0.375)
    assert row["latency_ms"] > 0
    assert row["error"] is None
    assert (row["deployment"], row["engine_model"]) == ("a", "model-of-a")
    assert row["base_url"] == base_url


async def test_old_metric_names_and_absent_metrics(api: ControlApi) -> None:
    old = engine(lambda path, _: (200, YESTERDAY if path == "/metrics" else ""))
    none = engine(lambda path, _: (404 if path == "/metrics" else 200, ""))
    bare = engine(lambda path, _: (404, ""))  # no /health either, as other servers than vLLM
    async with old as old_url, none as none_url, bare as bare_url:
        await add_engine(api, "old", old_url)
        await add_engine(api, "none", none_url)
        await add_engine(api, "bare", bare_url)
        first, second, third = (await api.get("/engines"))["data"]
    assert (first["running"], first["waiting"], first["kv_cache_usage"]) == (0, None, 0.125)
    assert second["state"] == "ready"
    assert (second["running"], second["kv_cache_usage"]) == (None, None)
    assert (third["state"], third["error"]) == ("ready", None)


async def test_the_engine_s_secret_is_sent_and_not_shown(api: ControlApi) -> None:
    def respond(_: str, headers: dict[str, str]) -> tuple[int, str]:
        return (200, "") if headers.get("authorization") == "Bearer eng-secret" else (401, "")

    async with engine(respond) as base_url:
        await add_engine(api, "locked", base_url, secret="eng-secret")
        await add_engine(api, "unlocked", base_url)
        answer = await api.http.get("/engines")
    locked, unlocked = answer.json()["data"]
    assert locked["state"] == "ready"
    assert unlocked["state"] == "failed"
    assert "401" in unlocked["error"]
    assert "eng-secret" not in answer.text


async def test_dead_and_silent_engines_are_probed_side_by_side(api: ControlApi) -> None:
    with socket.socket() as free, socket.socket() as silent:
        free.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)  # takes connections and never answers
        await add_engine(api, "dead", f"http://127.0.0.1:{free.getsockname()[1]}")
        for number in range(5):
            await add_engine(api, f"s{number}", f"http://127.0.0.1:{silent.getsockname()[1]}")
        begun = time.monotonic()
        rows = (await api.get("/engines"))["data"]
        taken = time.monotonic() - begun
    assert [row["state"] for row in rows] == ["failed", *["unknown"] * 5]
    assert rows[0]["error"] == "connection refused"
    assert rows[1]["error"] == "did not answer this page within 2 s"
    assert rows[1]["latency_ms"] is None
    assert taken < 4


async def test_figures_that_are_none(api: ControlApi) -> None:
    page = (
        "vllm:num_requests_running NaN\nvllm:num_requests_waiting +Inf\nvllm:kv_cache_usage_perc \n"
    )
    async with engine(lambda _, __: (200, page)) as base_url:
        await add_engine(api, "odd", base_url)
        (row,) = (await api.get("/engines"))["data"]
    assert row["state"] == "ready"
    assert (row["running"], row["waiting"], row["kv_cache_usage"]) == (None, None, None)


@pytest.mark.parametrize(
    ("report", "state", "said"),
    [
        ({"state": "sleeping"}, "sleeping", None),
        ({"state": "draining"}, "draining", None),
        ({"state": "starting"}, "starting", None),
        (
            {"state": "failed", "reason": "exit code 1"},
            "failed",
            "connection refused; its agent says that it is failed (exit code 1)",
        ),
        ({"state": "ready"}, "failed", "connection refused; its agent says that it is ready"),
        ({"state": 7}, "failed", "connection refused; its agent does not answer"),
    ],
)
async def test_of_a_stopped_engine_its_agent_tells(
    api: ControlApi, report: dict[str, Any], state: str, said: str | None
) -> None:
    def respond(path: str, headers: dict[str, str]) -> tuple[int, str]:
        is_known = headers.get("authorization") == "Bearer eng-secret"
        return (200, json.dumps(report)) if is_known and path == "/state" else (401, "")

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        base_url = f"http://127.0.0.1:{free.getsockname()[1]}"
        async with engine(respond) as agent_url:
            await add_engine(api, "a", base_url, agent_url=agent_url, secret="eng-secret")
            (row,) = (await api.get("/engines"))["data"]
    assert (row["state"], row["error"]) == (state, said)
    assert row["running"] == (0 if state == "sleeping" else None)


async def test_a_slow_engine_is_what_its_agent_says(api: ControlApi) -> None:
    agent = engine(lambda path, _: (200 if path == "/state" else 404, '{"state": "ready"}'))
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)  # takes connections and never answers
        async with agent as agent_url:
            base_url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            await add_engine(api, "slow", base_url, agent_url=agent_url)
            (row,) = (await api.get("/engines"))["data"]
    assert row["state"] == "ready"
    assert row["error"] == ("did not answer this page within 2 s; its agent says that it is ready")
