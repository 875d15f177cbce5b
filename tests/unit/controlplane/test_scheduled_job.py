"""The loop of the background jobs: what it outlives, what it says, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy.exc import OperationalError

from gateway.controlplane.scheduled_job import run_again_and_again

LOG = logging.getLogger("tests.scheduled_job")


def start(job: Callable[[], Awaitable[object]], *, poll_seconds: float = 0.0) -> asyncio.Task[None]:
    return asyncio.create_task(
        run_again_and_again(job, poll_seconds=poll_seconds, name="the job", log=LOG)
    )


async def test_a_database_that_is_away_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    done = asyncio.Event()
    failures = iter([1, 1, 0, 1, 1])

    async def job() -> None:
        is_failing = next(failures, None)
        if is_failing is None:
            done.set()
        elif is_failing:
            raise OperationalError("select at postgres://secret", None, Exception("secret"))

    task = start(job)
    await asyncio.wait_for(done.wait(), 5)
    task.cancel()
    told = [record.getMessage() for record in caplog.records]
    assert told == ["the job: waits for the database: OperationalError"] * 2


async def test_a_fault_is_logged_and_outlived(caplog: pytest.LogCaptureFixture) -> None:
    done = asyncio.Event()
    calls = 0

    async def job() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("odd")
        done.set()

    task = start(job)
    await asyncio.wait_for(done.wait(), 5)
    task.cancel()
    (record,) = caplog.records
    assert record.getMessage() == "the job failed; trying on"
    assert record.exc_info is not None


async def test_it_ends_although_a_cancellation_was_swallowed() -> None:
    begun = asyncio.Event()

    async def job() -> None:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    task = start(job, poll_seconds=3600.0)
    await asyncio.wait_for(begun.wait(), 5)
    task.cancel()
    await asyncio.wait_for(task, 5)
