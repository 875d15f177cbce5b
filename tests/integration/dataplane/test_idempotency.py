"""Idempotency-Key through real data-plane processes: one engine call, one record, one reply."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from billing.usage.event import RequestStatus
from billing.usage.journal_files import list_journals
from billing.usage.read_journal import JournalReader
from tests.factories.engine_replies import (
    STREAM_HEAD,
    answer,
    chat_reply,
    encode,
    error_reply,
    piece,
    stream,
    whole,
)
from tests.fixtures.data_plane import DataPlaneProcess, _has_open, bearer, run_data_plane
from tests.fixtures.processes import wait_for
from tests.fixtures.raw_http import connect, request_bytes
from tests.fixtures.scripted_engine import Fin, Gate, Hang, Pause, ScriptedEngine

REPLAY = "x-forebay-idempotent-replay"
EVENTS = answer(["one ", "two ", "three ", "four"])
BODY: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "Hi"}]}
STREAM_BODY = {**BODY, "stream": True, "stream_options": {"include_usage": True}}


def post(
    plane: DataPlaneProcess, body: dict[str, Any] | None = None, *, key: str = "k-1"
) -> httpx.Response:
    return plane.post(encode(body or BODY), idempotency_key=f"{key}-{plane.options.get('run')}")


@pytest.fixture
def plane(plane: DataPlaneProcess) -> DataPlaneProcess:
    """Return the session's data plane, with keys that no test before has used."""
    plane.options["run"] = time.monotonic_ns()
    return plane


class Follower:
    """A streamed reply that is read in a thread of its own."""

    def __init__(self, plane: DataPlaneProcess, *, key: str = "k-1") -> None:
        self.raw = b""
        self.headers: dict[str, str] = {}
        self.fault: Exception | None = None
        self._plane = plane
        self._key = f"{key}-{plane.options.get('run')}"
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            with httpx.stream(
                "POST",
                self._plane.url + "/v1/chat/completions",
                json=STREAM_BODY,
                headers={**bearer("fb-test-good"), "idempotency-key": self._key},
                timeout=30,
                trust_env=False,
            ) as reply:
                self.headers = dict(reply.headers)
                for part in reply.iter_raw():
                    self.raw += part
        except httpx.HTTPError as error:
            self.fault = error

    def wait_bytes(self, wanted: bytes) -> None:
        wait_for(lambda: wanted in self.raw, f"{wanted!r} at the client", 10)

    def finish(self) -> bytes:
        self._thread.join(20)
        assert not self._thread.is_alive()
        assert self.fault is None
        return self.raw


def gated_answer(gate: threading.Event) -> tuple[Any, ...]:
    first, rest = EVENTS[:3], EVENTS[3:]
    return (
        STREAM_HEAD + b"".join(map(piece, first)),
        Gate(gate),
        b"".join(map(piece, rest)) + b"0\r\n\r\n",
    )


def test_twenty_at_once_are_one_engine_call(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(Pause(0.3), whole(chat_reply("Once.")))
    opened = plane.opened
    with ThreadPoolExecutor(20) as pool:
        replies = list(pool.map(lambda _: post(plane), range(20)))
    assert len(engine.requests) == 1
    assert len({reply.content for reply in replies}) == 1
    assert {reply.status_code for reply in replies} == {200}
    assert len({reply.headers["x-request-id"] for reply in replies}) == 1
    assert sorted(REPLAY in reply.headers for reply in replies) == [False] + [True] * 19
    close = plane.last_close(opened)
    assert (close.identity.request_id, close.status) == (
        replies[0].headers["x-request-id"],
        RequestStatus.COMPLETED,
    )
    assert post(plane).content == replies[0].content  # and afterwards
    assert plane.opened == opened + 1


def test_a_stream_is_joined_midway(plane: DataPlaneProcess, engine: ScriptedEngine) -> None:
    gate = threading.Event()
    engine.reply(*gated_answer(gate))
    opened = plane.opened
    owner = Follower(plane)
    owner.wait_bytes(b"two ")
    late = Follower(plane)
    late.wait_bytes(b"two ")
    assert b"three" not in late.raw
    gate.set()
    assert owner.finish() == late.finish()
    assert late.raw.endswith(b"data: [DONE]\n\n")
    assert late.headers[REPLAY] == "true"
    assert late.headers["x-request-id"] == owner.headers["x-request-id"]
    assert len(engine.requests) == 1
    assert plane.last_close(opened).usage.output_tokens == 4


def test_another_body_is_refused(plane: DataPlaneProcess, engine: ScriptedEngine) -> None:
    engine.reply(whole(chat_reply()))
    assert post(plane).status_code == 200
    opened = plane.opened
    reply = post(plane, {**BODY, "temperature": 0})
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "idempotency_key_reused")
    assert plane.opened == opened
    assert len(engine.requests) == 1


def test_a_bad_key_is_refused(plane: DataPlaneProcess, engine: ScriptedEngine) -> None:
    reply = plane.post(encode(BODY), idempotency_key="k" * 256)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_idempotency_key")
    assert engine.requests == []


def test_a_client_that_left_finds_its_reply(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    gate = threading.Event()
    engine.reply(*gated_answer(gate))
    opened = plane.opened
    line = f"idempotency-key: k-1-{plane.options['run']}\r\n"
    client: socket.socket = connect(plane.port)
    client.sendall(
        request_bytes(encode(STREAM_BODY), headers="authorization: Bearer fb-test-good\r\n" + line)
    )
    seen = b""
    while b"two " not in seen:
        seen += client.recv(65536)
    client.close()
    assert not engine.wait_request().left.wait(0.5)  # the engine goes on
    retry = plane.client.stream(
        "POST",
        plane.url + "/v1/chat/completions",
        content=encode(STREAM_BODY),
        headers={**bearer("fb-test-good"), "idempotency-key": f"k-1-{plane.options['run']}"},
    )
    with retry as reply:
        gate.set()
        raw = b"".join(reply.iter_raw())
    assert raw.endswith(b"data: [DONE]\n\n")
    assert [word in raw for word in (b"one ", b"two ", b"three ", b"four")] == [True] * 4
    assert len(engine.requests) == 1
    close = plane.last_close(opened)
    assert (close.status, close.usage.output_tokens) == (RequestStatus.COMPLETED, 4)


@pytest.mark.parametrize(
    "failure",
    [
        (error_reply("No.", 500),),
        (error_reply("Too long.", 400),),
        (STREAM_HEAD + b"".join(map(piece, EVENTS[:3])), Fin()),
    ],
    ids=["500", "400", "cut"],
)
def test_a_failure_frees_the_key(
    plane: DataPlaneProcess, engine: ScriptedEngine, failure: tuple[Any, ...]
) -> None:
    engine.reply_once(*failure)
    engine.reply(stream(*EVENTS))
    first = post(plane, STREAM_BODY)
    assert b"[DONE]" not in first.content
    again = post(plane, STREAM_BODY)
    assert again.status_code == 200
    assert again.content.endswith(b"data: [DONE]\n\n")
    assert REPLAY not in again.headers
    assert len(engine.requests) == 2


def test_retention_and_bounds_are_settings(engine: ScriptedEngine, tmp_path: Path) -> None:
    with run_data_plane(
        tmp_path / "state",
        engine.url,
        idempotency_retention_seconds=0.5,
        idempotency_max_reply_bytes=2000,
    ) as plane:
        engine.reply(whole(chat_reply("Short.")))
        assert REPLAY not in post(plane).headers
        assert REPLAY in post(plane).headers
        wait_for(lambda: REPLAY not in post(plane).headers, "the reply's time is over", 5)
        engine.reply(whole(chat_reply("Long. " * 1000)))
        for _ in range(2):  # never kept
            reply = post(plane, key="long")
            assert len(reply.content) > 2000
            assert REPLAY not in reply.headers


@pytest.fixture
def two_workers(
    engine: ScriptedEngine, valkey_url: str, tmp_path: Path
) -> Iterator[DataPlaneProcess]:
    with run_data_plane(tmp_path / "state", engine.url, workers=2, redis_url=valkey_url) as plane:
        wait_for(lambda: len(plane.worker_pids()) == 2, "two workers", 10)
        yield plane


def test_a_detached_run_ends_within_the_drain(
    engine: ScriptedEngine, valkey_url: str, tmp_path: Path
) -> None:
    gate = threading.Event()
    engine.reply(*gated_answer(gate))
    with run_data_plane(tmp_path / "state", engine.url, redis_url=valkey_url) as plane:
        client = connect(plane.port)
        line = "authorization: Bearer fb-test-good\r\nidempotency-key: k-1-None\r\n"
        client.sendall(request_bytes(encode(STREAM_BODY), headers=line))
        seen = b""
        while b"two " not in seen:
            seen += client.recv(65536)
        client.close()
        plane.terminate()
        gate.set()
        assert plane.process is not None
        assert plane.process.wait(20) == 0
        plane.start()
        replay = post(plane, STREAM_BODY)  # what was kept outlives the process, in Redis
        assert replay.headers[REPLAY] == "true"
        assert replay.content.endswith(b"data: [DONE]\n\n")
        [close] = plane.closes
        assert close.status is RequestStatus.COMPLETED
    assert len(engine.requests) == 1


def owner_pid(plane: DataPlaneProcess) -> int:
    """Return the worker whose journal has an open record."""
    for directory in list_journals(plane.journal_dir):
        reader = JournalReader(directory, None)
        opened = reader.read_batch(100).opened
        reader.close()
        if opened:
            [pid] = [pid for pid in plane.worker_pids() if _has_open(pid, directory)]
            return pid
    raise AssertionError("no request was opened")


@pytest.mark.faults
def test_a_killed_owner_frees_the_key(
    two_workers: DataPlaneProcess, engine: ScriptedEngine, valkey_url: str
) -> None:
    plane = two_workers
    engine.reply_once(STREAM_HEAD + b"".join(map(piece, EVENTS[:3])), Hang())
    engine.reply(stream(*EVENTS))
    owner = Follower(plane)
    owner.wait_bytes(b"two ")
    pid = owner_pid(plane)
    with redis.Redis.from_url(valkey_url) as server:
        wait_for(
            lambda: len(list(server.scan_iter("{forebay}:once:*:*"))) == 1,
            "what the owner has so far, in Redis",
        )
    os.kill(pid, signal.SIGSTOP)  # who comes now is served by the other worker
    try:
        late = Follower(plane)
        late.wait_bytes(b"two ")
    finally:
        os.kill(pid, signal.SIGKILL)
    killed_at = time.monotonic()
    raw = late.finish()
    assert time.monotonic() - killed_at < 15
    assert b'"code":"idempotent_owner_lost"' in raw
    assert b"[DONE]" not in raw
    again = post(plane, STREAM_BODY)
    assert again.content.endswith(b"data: [DONE]\n\n")
    assert len(engine.requests) == 2
    assert plane.close_of(again).status is RequestStatus.COMPLETED


def ask_many(plane: DataPlaneProcess, times: int) -> set[bytes]:
    """Ask the same on connections of their own, so that both workers are met; return what came."""

    def ask(_: int) -> bytes:
        with httpx.Client(trust_env=False, timeout=20) as client:
            return client.post(
                plane.url + "/v1/chat/completions",
                json=BODY,
                headers={**bearer("fb-test-good"), "idempotency-key": "k"},
            ).content

    with ThreadPoolExecutor(times) as pool:
        return set(pool.map(ask, range(times)))


def test_many_workers_make_one_call(two_workers: DataPlaneProcess, engine: ScriptedEngine) -> None:
    engine.reply(Pause(0.3), whole(chat_reply("Once.")))
    assert len(ask_many(two_workers, 20)) == 1
    assert len(engine.requests) == 1
    assert len(two_workers.closes) == 1


def test_an_emptied_redis_makes_no_second_call(
    two_workers: DataPlaneProcess, engine: ScriptedEngine, valkey_url: str
) -> None:
    gate = threading.Event()
    engine.reply(Gate(gate), whole(chat_reply("Once.")))
    with ThreadPoolExecutor(2) as pool, redis.Redis.from_url(valkey_url) as server:
        first = pool.submit(ask_many, two_workers, 1)
        wait_for(lambda: len(engine.requests) == 1, "it runs")
        server.flushall()
        later = pool.submit(ask_many, two_workers, 10)
        wait_for(lambda: bool(list(server.scan_iter("{forebay}:once:*"))), "its key is back")
        gate.set()
        assert first.result() == later.result()
    assert len(engine.requests) == 1
    assert len(two_workers.closes) == 1
