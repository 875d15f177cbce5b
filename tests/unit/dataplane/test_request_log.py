"""The request log's file, and what happens when it cannot be written."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from billing.usage.event import RequestIdentity, RequestStatus, TokenUsage
from gateway.dataplane.config import DataPlaneConfig
from gateway.dataplane.request_log import request_log
from gateway.dataplane.request_log.log_file import LogFile
from gateway.dataplane.request_log.request_log import RequestLog, Settled
from gateway.dataplane.serve import run

IDENTITY = RequestIdentity(
    "req_1", "org_1", "prj_1", "key_1", "route_1", "small", "dep_1", "completions", False, 1_000_000
)
SETTLED = cast(
    "Settled",
    SimpleNamespace(
        identity=IDENTITY,
        route=SimpleNamespace(deployment="one"),
        replica=None,
        decision=None,
        attempts=0,
        ended_attempts=None,
        status=RequestStatus.FAILED,
        http_status=503,
        usage=TokenUsage(),
        first_token_at_us=None,
        error_code="no_replica",
    ),
)


def test_a_pipe_that_others_write_too_gets_whole_lines_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writes: list[bytes] = []

    def write(fd: int, data: memoryview) -> int:
        assert fd == 1
        writes.append(bytes(data))
        return len(data)

    monkeypatch.setattr(os, "write", write)
    lines = [b"%d" % number * size + b"\n" for number, size in enumerate((1, 3000, 3000, 9000, 5))]
    LogFile("stdout").write(lines)
    assert b"".join(writes) == b"".join(lines)
    assert all(piece.endswith(b"\n") for piece in writes)
    assert all(len(piece) <= 4096 or piece.count(b"\n") == 1 for piece in writes)


def test_a_line_that_was_torn_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, write = LogFile(str(tmp_path / "log")), os.write
    room = [4, 0]  # bytes that the disk takes before it is full, and then

    def full(fd: int, data: memoryview) -> int:
        if not room or not (size := room.pop(0)):
            raise OSError(28, "No space left on device")
        return write(fd, data[:size])

    monkeypatch.setattr(os, "write", full)
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            file.write([b"first\n"])
    monkeypatch.setattr(os, "write", write)
    file.write([b"second\n"])
    assert (tmp_path / "log").read_bytes() == b"firs\nsecond\n"
    file.close()


async def test_what_cannot_be_written_is_dropped_and_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_log, "WRITE_SECONDS", 0.01)
    log = RequestLog("/dev/full", asyncio.get_running_loop())
    for _ in range(100):
        log.settled(SETTLED)
    async with asyncio.timeout(10):
        while "lost 100 lines: No space left" not in caplog.text:  # noqa: ASYNC110 - a thread's
            await asyncio.sleep(0.01)
    await log.stop()
    log.close()


async def test_no_more_wait_than_there_is_room_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_log, "MAX_WAITING", 40)
    log = RequestLog(str(tmp_path / "log"), asyncio.get_running_loop())
    for _ in range(45):
        log.settled(SETTLED)
    with caplog.at_level(logging.ERROR):
        await log.stop()
        log.close()
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 40
    assert "lost 5 lines: too many wait" in caplog.text
    line = json.loads(lines[0])
    assert (line["request_id"], line["error_code"], line["decision"]) == (
        "req_1",
        "no_replica",
        None,
    )
    assert line["earlier_attempts"] == []


def test_a_log_that_cannot_be_written_is_told_before_anything_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = DataPlaneConfig(
        "127.0.0.1",
        0,
        1,
        journal_dir=tmp_path / "journal",
        snapshot_path=tmp_path / "snapshot.json",
        request_log=str(tmp_path / "nowhere" / "requests.jsonl"),
    )
    assert run(config) == 1
    assert "cannot write the request log" in caplog.text
