"""Retry-After of the queue counts what runs: who waits so long is let in, if nobody else came.

In jumped time, with requests that hold their slots for as long as the test says.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest

from gateway.dataplane.fair_queue import FairQueue
from gateway.dataplane.queue_order import INTERACTIVE
from gateway.dataplane.queue_slot import QueueRefusedError, QueueTimeoutError
from tests.fixtures.stepped_loop import JumpingLoop

Seconds = Callable[[], float]


class World:
    """A queue, clients that hold its slots for a while, and one who does as Retry-After says."""

    def __init__(self, loop: JumpingLoop, capacity: int) -> None:
        self.loop = loop
        self.queue = FairQueue(loop, capacity)

    async def ask(
        self, seconds: float, cost: float, *, size: int = 0, deadline_seconds: float = 1e6
    ) -> None:
        slot = await self.queue.enter(
            route_id="route",
            organization_id="org",
            weight=1.0,
            priority=INTERACTIVE,
            cost=cost,
            size=size,
            deadline_seconds=deadline_seconds,
        )
        await asyncio.sleep(seconds)
        slot.leave()

    async def hold_all(self, seconds: Seconds, cost: float) -> list[asyncio.Task[None]]:
        """Fill every slot, at once."""
        capacity = self.queue.capacity or 0
        tasks = [self.loop.create_task(self.ask(seconds(), cost)) for _ in range(capacity)]
        await asyncio.sleep(0)
        return tasks

    async def count_untrue(self, cost: float, *, size: int = 0) -> int:
        """Return how often the client was told a time that was too short."""
        untrue = 0
        while True:
            try:
                await self.ask(0.0, cost, size=size)
            except QueueRefusedError as refusal:
                told = refusal.retry_after_seconds
            else:
                return untrue - 1  # the first refusal was no answer to a promise
            assert told >= 1.0
            untrue += 1
            await asyncio.sleep(told)


@pytest.fixture
def loop() -> Iterator[JumpingLoop]:
    loop = JumpingLoop()
    yield loop
    loop.close()


@pytest.mark.parametrize("is_measured", [False, True])
@pytest.mark.parametrize("capacity", [1, 4])
def test_long_calls_without_a_queue(loop: JumpingLoop, capacity: int, is_measured: bool) -> None:
    """Measured: told once and true. Not measured: the guess may be short, and grows at once."""

    async def go() -> int:
        world = World(loop, capacity)
        if is_measured:
            await asyncio.gather(*await world.hold_all(lambda: 15.0, 400.0))
        held = await world.hold_all(lambda: 15.0, 400.0)
        await asyncio.sleep(1.0)
        began_at = loop.now
        untrue = await world.count_untrue(400.0)
        assert loop.now - began_at <= 2 * 14.0
        await asyncio.gather(*held)
        return untrue

    assert loop.run_until_complete(go()) <= (0 if is_measured else 2)


def test_one_that_takes_ten_times_its_estimate(loop: JumpingLoop) -> None:
    """Who runs longer than was thought is expected to go on, so few answers are untrue."""

    async def go() -> int:
        world = World(loop, 1)
        await asyncio.gather(*await world.hold_all(lambda: 3.0, 100.0))
        held = await world.hold_all(lambda: 30.0, 100.0)
        untrue = await world.count_untrue(100.0)
        await asyncio.gather(*held)
        return untrue

    assert loop.run_until_complete(go()) <= 4


@pytest.mark.parametrize("capacity", [1, 3, 16])
@pytest.mark.parametrize("size", [0, 2])
def test_it_is_usually_true_and_not_much_too_long(
    loop: JumpingLoop, capacity: int, size: int
) -> None:
    """Calls of 6 to 14 s under one estimate, asked at any moment of theirs."""
    chance = random.Random(7)

    async def try_once(world: World) -> tuple[bool, float]:
        held = await world.hold_all(lambda: chance.uniform(6.0, 14.0), 300.0)
        for _ in range(size):
            seconds = chance.uniform(6.0, 14.0)
            held.append(loop.create_task(world.ask(seconds, 300.0, size=size)))
        await asyncio.sleep(chance.uniform(0.0, 6.0))
        began_at = loop.now
        told = world.queue.retry_after_seconds(INTERACTIVE)
        while world.queue.waiting or world.queue.running >= capacity:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        took = loop.now - began_at
        await asyncio.gather(*held)
        return took - 0.5 <= told, told - took

    async def go() -> None:
        world = World(loop, capacity)
        await asyncio.gather(*await world.hold_all(lambda: 10.0, 300.0))
        tries = [await try_once(world) for _ in range(60)]
        assert sum(is_true for is_true, _ in tries) >= 40
        assert sum(spare for _, spare in tries) / len(tries) <= 7.0

    loop.run_until_complete(go())


def test_who_waited_too_long_is_told_the_truth_too(loop: JumpingLoop) -> None:
    async def go() -> None:
        world = World(loop, 1)
        await asyncio.gather(*await world.hold_all(lambda: 20.0, 400.0))
        held = await world.hold_all(lambda: 20.0, 400.0)
        with pytest.raises(QueueTimeoutError) as late:
            await world.ask(1.0, 400.0, size=1, deadline_seconds=5.0)
        assert 15.0 <= late.value.retry_after_seconds <= 21.0
        await asyncio.sleep(late.value.retry_after_seconds)
        assert world.queue.try_enter(1.0) is not None
        await asyncio.gather(*held)

    loop.run_until_complete(go())


def test_slots_above_a_lowered_capacity_come_free_for_nobody(loop: JumpingLoop) -> None:
    async def go() -> None:
        world = World(loop, 4)
        await asyncio.gather(*await world.hold_all(lambda: 10.0, 100.0))
        held = []
        for _ in range(4):
            held.append(loop.create_task(world.ask(10.0, 100.0)))
            await asyncio.sleep(2.0)
        world.queue.set_capacity(1)
        # They end in 2, 4, 6 and 8 seconds; 2.5 are to spare.
        assert world.queue.retry_after_seconds(INTERACTIVE) == pytest.approx(8.0 + 2.5)
        await asyncio.gather(*held)

    loop.run_until_complete(go())


def test_many_that_run_are_looked_at_in_part(loop: JumpingLoop) -> None:
    async def go() -> None:
        world = World(loop, 1000)
        await asyncio.gather(*await world.hold_all(lambda: 10.0, 100.0))
        held = await world.hold_all(lambda: 10.0, 100.0)
        assert world.queue.retry_after_seconds(INTERACTIVE) == pytest.approx(10.0, abs=0.1)
        await asyncio.gather(*held)

    loop.run_until_complete(go())
