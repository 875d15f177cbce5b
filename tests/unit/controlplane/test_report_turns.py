"""Reports are computed one at a time, beside the event loop; who cannot wait is told so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from gateway.controlplane.errors import BusyError
from gateway.controlplane.report_turns import ReportTurns


class Work:
    """Work that ends when it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.end = threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.end.wait(10)
        return "done"


@pytest.fixture
def work() -> Iterator[Work]:
    made = Work()
    yield made
    made.end.set()


async def is_begun(work: Work) -> None:
    assert await asyncio.to_thread(work.begun.wait, 10)


async def test_the_next_waits_and_the_one_after_it_is_refused(work: Work) -> None:
    turns = ReportTurns(most_waiting=1)
    first = asyncio.create_task(turns.compute(work))
    await is_begun(work)  # the loop goes on while it runs
    second = asyncio.create_task(turns.compute(lambda: "next"))
    await asyncio.sleep(0)
    with pytest.raises(BusyError) as refused:
        await turns.compute(lambda: "too many")
    assert refused.value.headers == {"retry-after": "5"}
    assert not second.done()
    work.end.set()
    assert (await first, await second) == ("done", "next")
    assert await turns.compute(lambda: "free again") == "free again"
    turns.close()


async def test_a_turn_that_does_not_come_in_time_is_never_begun(work: Work) -> None:
    turns = ReportTurns(longest_wait_seconds=0.02)
    first = asyncio.create_task(turns.compute(work))
    await is_begun(work)
    late = Work()
    with pytest.raises(BusyError):
        await turns.compute(late)
    work.end.set()
    assert await first == "done"  # longer than the longest wait: that is for the turn alone
    assert await turns.compute(lambda: 1) == 1
    assert not late.begun.is_set()
    turns.close()


async def test_who_leaves_gives_up_a_turn_but_not_one_that_has_begun(work: Work) -> None:
    turns = ReportTurns(most_waiting=1)
    first = asyncio.create_task(turns.compute(work))
    await is_begun(work)
    waiting = asyncio.create_task(turns.compute(late := Work()))
    await asyncio.sleep(0)
    for task in (first, waiting):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    second = asyncio.create_task(turns.compute(lambda: 2))
    await asyncio.sleep(0)
    with pytest.raises(BusyError):  # the first still runs, for nobody
        await turns.compute(lambda: 3)
    work.end.set()
    assert await second == 2
    assert not late.begun.is_set()
    turns.close()


async def test_what_the_work_raises_is_raised() -> None:
    turns = ReportTurns(most_waiting=0)

    def fail() -> None:
        raise KeyError("x")

    for _ in range(3):  # and leaves its place
        with pytest.raises(KeyError):
            await turns.compute(fail)
    turns.close()
