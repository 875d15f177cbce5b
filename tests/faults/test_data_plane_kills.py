"""The data plane killed, stopped and starved of disk in the middle of its work."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from billing.usage.event import RequestStatus, TokenUsage
from tests.factories.engine_replies import (
    DONE,
    LAST_PIECE,
    STREAM_HEAD,
    chat_reply,
    chunk,
    encode,
    piece,
    total_chunk,
    usage,
    whole,
)
from tests.factories.snapshots import LONG_NAME
from tests.fixtures.data_plane import DataPlaneProcess, run_data_plane
from tests.fixtures.processes import wait_for
from tests.fixtures.raw_http import connect, request_bytes
from tests.fixtures.scripted_engine import Gate, Hang, ScriptedEngine, run_scripted_engine
from tests.fixtures.small_disk import fill_disk
from tests.integration.dataplane.test_clients_that_leave import read_until, start

pytestmark = pytest.mark.faults
WORDS = b"".join(piece(chunk("w ", counts=usage(9, number))) for number in range(1, 6))


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with run_scripted_engine() as server:
        yield server


def kill_and_wait(plane: DataPlaneProcess, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: pid not in plane.worker_pids(), "the worker is dead", 5)


def test_a_worker_killed_in_mid_stream_is_billed_to_its_last_progress(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    """One request each: with progress, without any output, ended before. The parent starts anew."""
    with run_data_plane(tmp_path / "state", engine.url) as plane:
        engine.reply_once(whole(chat_reply()))
        ended = plane.chat()
        engine.reply(STREAM_HEAD + WORDS, Hang())
        begun = start(plane, stream=True)
        read_until(begun, b'"w "')
        engine.reply(Hang())
        waiting = start(plane)
        engine.wait_request(3)
        time.sleep(1.3)  # progress is recorded once a second
        (pid,) = plane.worker_pids()
        kill_and_wait(plane, pid)
        killed_at = time.monotonic()
        assert engine.requests[1].wait_left() - killed_at < 1
        begun.close()
        waiting.close()
        wait_for(lambda: plane.open_requests == 0, "the dead worker's journal is read", 5)
        closes = {close.identity.request_id: close for close in plane.closes}
        assert len(closes) == plane.opened == 3
        assert closes.pop(ended.headers["x-request-id"]).status is RequestStatus.COMPLETED
        by_status = {close.status: close for close in closes.values()}
        assert set(by_status) == {RequestStatus.INTERRUPTED, RequestStatus.VOIDED}
        interrupted = by_status[RequestStatus.INTERRUPTED]
        assert interrupted.usage == TokenUsage(9, None, 5, None)
        assert interrupted.replica_id == "rep_live"
        engine.reply(whole(chat_reply()))
        wait_for(lambda: serves(plane), "a new worker serves", 15)
        (new_pid,) = plane.worker_pids()
        assert new_pid != pid
        assert plane.damages == 0


def serves(plane: DataPlaneProcess) -> bool:
    try:
        return plane.chat().status_code == 200
    except httpx.TransportError:
        return False


def test_one_killed_worker_of_two_is_replaced_while_the_other_serves(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    engine.reply(whole(chat_reply()))
    with run_data_plane(tmp_path / "state", engine.url, workers=2) as plane:
        wait_for(lambda: len(plane.worker_pids()) == 2, "two workers", 10)
        first, second = plane.worker_pids()
        kill_and_wait(plane, first)
        wait_for(lambda: serves(plane), "the other one serves", 2)
        wait_for(lambda: len(plane.worker_pids()) == 2, "two workers again", 15)
        assert second in plane.worker_pids()
        for _ in range(10):
            with httpx.Client(trust_env=False) as fresh:  # a connection each: any worker
                assert fresh.get(plane.url + "/health").status_code == 200
        wait_for(lambda: plane.open_requests == 0, "nothing stays open", 5)


def test_sigterm_lets_running_streams_end(engine: ScriptedEngine, tmp_path: Path) -> None:
    """Refused meanwhile: new requests, with a 503. The process ends when the last stream has."""
    gate = threading.Event()
    rest = piece(chunk("Ende.", finish="stop", counts=usage(9, 6))) + piece(total_chunk(9, 6))
    engine.reply(STREAM_HEAD + WORDS, Gate(gate), rest + piece(DONE) + LAST_PIECE)
    with run_data_plane(tmp_path / "state", engine.url, drain_seconds=10.0) as plane:
        client = start(plane, stream=True)
        read_until(client, b'"w "')
        assert plane.process is not None
        plane.terminate()
        time.sleep(0.7)
        assert plane.process.poll() is None
        gate.set()
        seen = read_until(client, b"[DONE]")
        assert b"Ende." in seen
        client.close()
        assert plane.process.wait(10) == 0
        (close,) = plane.closes
        assert (close.status, close.usage) == (
            RequestStatus.COMPLETED,
            TokenUsage(9, None, 6, None),
        )


def test_sigterm_cuts_what_does_not_end_and_settles_it(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    with run_data_plane(tmp_path / "state", engine.url, drain_seconds=1.0) as plane:
        engine.reply(STREAM_HEAD + WORDS, Hang())
        begun = start(plane, stream=True)
        read_until(begun, b'"w "')
        engine.reply(Hang())
        waiting = start(plane, stream=True)
        engine.wait_request(2)
        plane.terminate()
        assert plane.process is not None
        assert plane.process.wait(10) == 0
        seen = read_to_end(begun)
        assert b"shutting down" in seen
        assert b"[DONE]" not in seen
        told = read_to_end(waiting)
        assert told.startswith(b"HTTP/1.1 503")
        assert b"draining" in told
        by_status = {close.status: close for close in plane.closes}
        assert plane.opened == 2
        assert set(by_status) == {RequestStatus.INTERRUPTED, RequestStatus.VOIDED}
        assert by_status[RequestStatus.INTERRUPTED].usage == TokenUsage(9, None, 5, None)
        assert {close.error_code for close in plane.closes} == {"gateway_stopped"}


def read_to_end(client: socket.socket) -> bytes:
    with client:
        seen = b""
        while data := client.recv(65536):
            seen += data
        return seen


def test_a_full_disk_refuses_new_requests_and_settles_running_ones(
    engine: ScriptedEngine, tmp_path: Path, small_disk: Path
) -> None:
    """A disk of 20 MiB: two segments, one of which the test takes away and gives back."""
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    gate = threading.Event()
    rest = piece(chunk("Ende.", finish="stop", counts=usage(9, 6))) + piece(DONE) + LAST_PIECE
    with run_data_plane(
        tmp_path / "state", engine.url, journal_dir=str(small_disk / "journal")
    ) as plane:
        engine.reply(STREAM_HEAD + WORDS, Gate(gate), rest)
        running = start(plane, stream=True)
        read_until(running, b'"w "')
        ballast = fill_disk(small_disk)
        engine.reply(whole(chat_reply()))
        post_until_refused(plane)
        # A shorter record than those may still have had room.
        refused = next(one for _ in range(8) if (one := plane.chat()).status_code != 200)
        assert (refused.status_code, refused.json()["error"]["code"]) == (
            503,
            "journal_unavailable",
        )
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["retry-after-ms"] == "1000"
        ready = plane.get("/ready")
        assert (ready.status_code, ready.json()["missing"]) == (503, ["journal"])
        assert plane.get("/health").status_code == 200
        asked, opened = len(engine.requests), plane.opened
        assert plane.chat().status_code == 503
        assert (len(engine.requests), plane.opened) == (asked, opened)
        gate.set()
        read_until(running, b"[DONE]")
        running.close()
        wait_for(lambda: plane.open_requests == 0, "the running stream is settled", 5)
        assert plane.damages == 0
        ballast.unlink()
        wait_for(lambda: plane.get("/ready").status_code == 200, "room is noticed", 5)
        reply = plane.chat()
        assert reply.status_code == 200
        assert plane.close_of(reply).status is RequestStatus.COMPLETED


def post_until_refused(plane: DataPlaneProcess) -> None:
    """Fill the journal's segment: requests that are admitted and find no replica, many at once."""
    body = encode({"model": LONG_NAME, "messages": []})
    with connect(plane.port) as client:
        for _ in range(200):
            client.sendall(request_bytes(body) * 100)
            seen = b""
            while seen.count(b"HTTP/1.1 503") < 100:
                seen += client.recv(1 << 20)
            if b"journal_unavailable" in seen:
                return
    raise AssertionError("never refused")
