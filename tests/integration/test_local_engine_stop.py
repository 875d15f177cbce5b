"""A client that leaves stops its generation; a signal stops the server; a dead part stops the rest."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.local_engine import (
    MAX_NUM_SEQS,
    LocalEngine,
    start_local_engine,
    stop_local_engine,
)

pytestmark = pytest.mark.e2e

ENDLESS = {
    "messages": [{"role": "user", "content": "Write a long story."}],
    "ignore_eos": True,
    "max_tokens": 700,
}


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Poll until ``condition``; fails after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def is_running(engine: LocalEngine, count: int) -> Callable[[], bool]:
    """Return a check that ``count`` sequences run."""
    return lambda: engine.metrics()["num_requests_running"] == count


def assert_stays_idle(engine: LocalEngine) -> None:
    """Fail when tokens are still being generated."""
    before = engine.metrics()["generation_tokens_total"]
    time.sleep(0.4)
    after = engine.metrics()
    assert after["generation_tokens_total"] == before
    assert (after["num_requests_running"], after["num_requests_waiting"]) == (0, 0)


def post_without_reading(engine: LocalEngine, body: dict[str, Any]) -> socket.socket:
    """Send a request and return its open connection."""
    content = json.dumps(body).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: engine\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    connection = socket.create_connection(("127.0.0.1", engine.port))
    connection.sendall(head.encode() + content)
    return connection


def test_leaving_a_stream_stops_it_and_what_was_seen_is_what_was_made(
    local_engine: LocalEngine,
) -> None:
    wait_for(is_running(local_engine, 0))
    before = local_engine.metrics()
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = ENDLESS | {"stream": True, "stream_options": options}
    url = f"{local_engine.url}/v1/chat/completions"
    seen = 0
    with httpx.stream("POST", url, json=body, timeout=60) as response:
        for line in response.iter_lines():
            if line.startswith("data: "):
                seen = json.loads(line.removeprefix("data: "))["usage"]["completion_tokens"]
            if seen >= 10:
                break
    left_at = time.monotonic()
    wait_for(is_running(local_engine, 0))
    assert time.monotonic() - left_at < 6
    made = local_engine.metrics()["generation_tokens_total"] - before["generation_tokens_total"]
    assert seen <= made < seen + 100
    assert_stays_idle(local_engine)
    after = local_engine.metrics()
    assert after["request_success_total:length"] == before["request_success_total:length"]


@pytest.mark.parametrize("choices", [1, 3])
def test_leaving_without_a_stream_stops_every_choice(
    local_engine: LocalEngine, choices: int
) -> None:
    wait_for(is_running(local_engine, 0))
    with post_without_reading(local_engine, ENDLESS | {"n": choices}):
        wait_for(is_running(local_engine, choices))
    wait_for(is_running(local_engine, 0), 6)
    assert_stays_idle(local_engine)


def test_leaving_while_waiting_takes_the_place_in_line(local_engine: LocalEngine) -> None:
    wait_for(is_running(local_engine, 0))
    with ExitStack() as others:
        for _ in range(MAX_NUM_SEQS):
            others.enter_context(post_without_reading(local_engine, ENDLESS))
        wait_for(is_running(local_engine, MAX_NUM_SEQS))
        with post_without_reading(local_engine, ENDLESS | {"stream": True}):
            wait_for(lambda: local_engine.metrics()["num_requests_waiting"] == 1)
        wait_for(lambda: local_engine.metrics()["num_requests_waiting"] == 0, 6)
    wait_for(is_running(local_engine, 0), 6)
    assert_stays_idle(local_engine)


def test_a_chat_beside_a_large_request_is_answered_before_any_of_it_ends(
    local_engine: LocalEngine,
) -> None:
    wait_for(is_running(local_engine, 0))
    before = local_engine.metrics()
    with post_without_reading(local_engine, ENDLESS | {"n": 64}):
        wait_for(is_running(local_engine, 6))  # of 8 places
        url = f"{local_engine.url}/v1/chat/completions"
        reply = httpx.post(url, json=ENDLESS | {"max_tokens": 3}, timeout=60)
        assert reply.json()["usage"]["completion_tokens"] == 3
        after = local_engine.metrics()
    ended = "request_success_total:length"
    assert after[ended] == before[ended] + 1
    wait_for(is_running(local_engine, 0), 6)


def test_the_event_loop_answers_while_the_model_computes(local_engine: LocalEngine) -> None:
    with post_without_reading(local_engine, ENDLESS | {"n": 6}):
        wait_for(is_running(local_engine, 6))
        durations = []
        with httpx.Client(base_url=local_engine.url) as client:
            for _ in range(40):
                started_at = time.perf_counter()
                assert client.get("/health").status_code == 200
                durations.append(time.perf_counter() - started_at)
    wait_for(is_running(local_engine, 0))
    # a step with 6 sequences takes about 30 ms alone, more on a busy machine
    assert sorted(durations)[len(durations) // 2] < 0.02


@pytest.fixture
def own_engine(tmp_path: Path) -> Iterator[LocalEngine]:
    """Start an engine for one test, which may end it."""
    engine = start_local_engine(tmp_path / "engine.log")
    yield engine
    stop_local_engine(engine)


def child_of(engine: LocalEngine) -> int:
    """Return the process id of the engine process under the server."""
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(engine.process.pid)],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(listed.stdout.split()[0])


def is_alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_sigterm_ends_running_requests_with_an_error_within_3_seconds(
    own_engine: LocalEngine,
) -> None:
    assert httpx_health(own_engine) == 503
    early = httpx.post(f"{own_engine.url}/v1/chat/completions", json=ENDLESS)
    assert (early.status_code, early.headers["retry-after"]) == (503, "5")
    own_engine.wait_until_loaded()
    child = child_of(own_engine)
    answers: dict[str, httpx.Response] = {}

    def post(name: str, body: dict[str, Any]) -> None:
        url = f"{own_engine.url}/v1/chat/completions"
        answers[name] = httpx.post(url, json=body, timeout=60)

    threads = [
        threading.Thread(target=post, args=("stream", ENDLESS | {"stream": True})),
        threading.Thread(target=post, args=("whole", ENDLESS)),
    ]
    for thread in threads:
        thread.start()
    wait_for(is_running(own_engine, 2))
    asked_at = time.monotonic()
    own_engine.process.send_signal(signal.SIGTERM)
    assert own_engine.process.wait(timeout=10) == 0
    assert time.monotonic() - asked_at < 3
    for thread in threads:
        thread.join(5)
    assert answers["whole"].status_code == 500
    assert answers["whole"].json()["error"]["type"] == "InternalServerError"
    last = [line for line in answers["stream"].text.split("\n\n") if line][-2]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == 500
    wait_for(lambda: not is_alive(child), 3)
    log = own_engine.log.read_text()
    assert len(log.splitlines()) == 3, log  # start, ready, stop


def httpx_health(engine: LocalEngine) -> int:
    """Return /health's status as soon as the port is open."""
    status = 0

    def ask() -> bool:
        nonlocal status
        try:
            status = httpx.get(f"{engine.url}/health").status_code
        except httpx.TransportError:
            return False
        return True

    wait_for(ask)
    return status


def test_a_killed_engine_process_ends_the_stream_with_an_error_and_then_the_server(
    own_engine: LocalEngine,
) -> None:
    own_engine.wait_until_loaded()
    url = f"{own_engine.url}/v1/chat/completions"
    lines: list[str] = []
    with httpx.stream("POST", url, json=ENDLESS | {"stream": True}, timeout=60) as response:
        for line in response.iter_lines():
            if line.startswith("data: "):
                lines.append(line.removeprefix("data: "))
            if len(lines) == 5:
                os.kill(child_of(own_engine), signal.SIGKILL)
    assert json.loads(lines[-2])["error"]["type"] == "InternalServerError"
    assert lines[-1] == "[DONE]"
    assert own_engine.process.wait(timeout=10) == 1


def test_a_killed_server_takes_the_engine_process_with_it(own_engine: LocalEngine) -> None:
    own_engine.wait_until_loaded()
    child = child_of(own_engine)
    own_engine.process.kill()
    own_engine.process.wait(timeout=5)
    wait_for(lambda: not is_alive(child), 5)


def test_a_taken_port_is_one_sentence_and_exit_code_1(
    local_engine: LocalEngine, tmp_path: Path
) -> None:
    log = tmp_path / "second.log"
    second = start_local_engine(log, "--port", str(local_engine.port))
    assert second.process.wait(timeout=30) == 1
    assert len(log.read_text().splitlines()) == 1
    assert f"cannot listen on 127.0.0.1:{local_engine.port}" in log.read_text()
