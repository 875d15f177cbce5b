"""Ten times the capacity of a simulated engine, behind the fair queue: minutes of it, in no time.

The engine is the simulated one's batch, the queue the product's, the clients honour Retry-After;
only the clock is not real. ``benchmarks/overload`` measures the same with real processes.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from backends.simulated.batch import Batch, Sequence
from backends.simulated.config import Pace
from backends.simulated.step_clock import StepClock
from gateway.dataplane.fair_queue import FairQueue
from gateway.dataplane.queue_order import BATCH, INTERACTIVE
from gateway.dataplane.queue_slot import QueueRefusedError
from tests.fixtures.stepped_loop import JumpingLoop

PACE = Pace(step_ms=15.0, step_ms_per_sequence=0.5, max_num_seqs=16)
OUTPUT_TOKENS = 40
PROMPT_TOKENS = 100
CAPACITY_PER_SECOND = 16 / (OUTPUT_TOKENS * 0.0245)  # 16.3 requests/s in steps of 23 ms and a bit
SLO_SECONDS = 8.0
WARM_UP_SECONDS = 10.0
SECONDS = 15.0
PATIENCE_SECONDS = 15.0


@dataclass(frozen=True)
class Sender:
    """Who sends how much."""

    organization: str
    per_second: float
    priority: str = INTERACTIVE
    output_tokens: int = OUTPUT_TOKENS


@dataclass
class World:
    """An engine, a queue before it, and clients."""

    loop: JumpingLoop
    has_queue: bool = True
    size: int = 64
    good: int = 0
    refused: int = 0
    waited: float = 0.0  # longest, of those served
    tokens: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.queue = FairQueue(self.loop, PACE.max_num_seqs if self.has_queue else None)
        self.clock = StepClock(Batch(PACE), self.loop)
        self.random = random.Random(1)
        self.clients: set[asyncio.Task[None]] = set()
        self.measure_from = self.loop.now + WARM_UP_SECONDS

    async def offer(self, sender: Sender) -> None:
        """Send at random moments, whatever becomes of it."""
        while True:
            await asyncio.sleep(self.random.expovariate(sender.per_second))
            self.start(self.be_client(sender))

    def start(self, client: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(client)
        self.clients.add(task)
        task.add_done_callback(self.clients.discard)

    async def be_client(self, sender: Sender) -> None:
        """Try until served; give up after a while."""
        give_up_at = self.loop.now + PATIENCE_SECONDS
        while self.loop.now < give_up_at:
            asked_at = self.loop.now
            try:
                await self.ask(sender)
            except QueueRefusedError as refusal:
                self.refused += 1
                await asyncio.sleep(refusal.retry_after_seconds)
            else:
                if self.loop.now >= self.measure_from:
                    self.good += self.loop.now - asked_at <= SLO_SECONDS
                    self.waited = max(self.waited, self.loop.now - asked_at)
                    self.tokens[sender.organization] += sender.output_tokens
                return

    async def ask(self, sender: Sender) -> None:
        slot = await self.queue.enter(
            route_id=sender.priority,
            organization_id=sender.organization,
            weight=1.0,
            priority=sender.priority,
            cost=3.0 * sender.output_tokens,  # what max_tokens says, and nobody uses
            size=self.size,
            deadline_seconds=30.0,
        )
        ended = self.loop.create_future()

        def listen(_produced: int, is_last: bool) -> None:
            if is_last and not ended.done():
                ended.set_result(None)

        sequence = Sequence(PROMPT_TOKENS, sender.output_tokens, listen)
        self.clock.submit(sequence)
        try:
            await ended
        finally:
            self.clock.batch.remove(sequence)
            slot.leave(float(sequence.produced))


def run(*senders: Sender, seconds: float = SECONDS, **options: Any) -> World:
    """Let them send; return what came of it in ``seconds`` after the warm-up."""
    loop = JumpingLoop()
    world = World(loop, **options)

    async def go() -> None:
        offers = [loop.create_task(world.offer(sender)) for sender in senders]
        await asyncio.sleep(WARM_UP_SECONDS + seconds)
        for task in (*offers, *world.clients):
            task.cancel()
        await asyncio.gather(*offers, *world.clients, return_exceptions=True)

    try:
        loop.run_until_complete(go())
        assert (world.queue.running, world.queue.waiting) == (0, 0)
        assert (world.clock.batch.running, world.clock.batch.waiting) == (0, 0)
    finally:
        loop.close()
    return world


def test_goodput_at_ten_times_the_capacity_is_near_its_peak() -> None:
    levels = (0.9, 1.2, 2.0, 10.0)
    goodput = [run(Sender("a", level * CAPACITY_PER_SECOND)).good for level in levels]
    assert goodput[-1] >= 0.9 * max(goodput), dict(zip(levels, goodput, strict=True))
    assert max(goodput) >= 0.85 * CAPACITY_PER_SECOND * SECONDS


def test_without_the_queue_it_collapses() -> None:
    """The proof that the measure can fail."""
    assert run(Sender("a", 10 * CAPACITY_PER_SECOND), has_queue=False).good == 0


def test_a_flood_leaves_the_other_organization_its_half() -> None:
    world = run(
        Sender("flood", 9 * CAPACITY_PER_SECOND), Sender("modest", 0.9 * CAPACITY_PER_SECOND)
    )
    assert world.tokens["modest"] == pytest.approx(world.tokens["flood"], rel=0.1)


def test_fairness_is_in_cost_and_not_in_requests() -> None:
    world = run(
        Sender("long", 2 * CAPACITY_PER_SECOND, output_tokens=4 * OUTPUT_TOKENS),
        Sender("short", 8 * CAPACITY_PER_SECOND),
        seconds=30.0,  # few of the long ones are served, so chance has more to say
    )
    assert world.tokens["long"] == pytest.approx(world.tokens["short"], rel=0.1)


def test_who_stays_below_its_share_hardly_waits() -> None:
    world = run(
        Sender("flood", 10 * CAPACITY_PER_SECOND), Sender("quiet", 0.2 * CAPACITY_PER_SECOND)
    )
    offered = 0.2 * CAPACITY_PER_SECOND * OUTPUT_TOKENS * SECONDS
    assert world.tokens["quiet"] == pytest.approx(offered, rel=0.15)


def test_batch_does_not_starve() -> None:
    world = run(
        Sender("chat", 10 * CAPACITY_PER_SECOND),
        Sender("bulk", 10 * CAPACITY_PER_SECOND, priority=BATCH),
    )
    share = world.tokens["bulk"] / (world.tokens["bulk"] + world.tokens["chat"])
    assert share == pytest.approx(0.1, abs=0.02)


def test_no_retry_storm() -> None:
    """Refused clients come back as often as the queue drains, and not more."""
    world = run(Sender("a", 10 * CAPACITY_PER_SECOND))
    drain_seconds = world.size / CAPACITY_PER_SECOND
    attempts_per_second = world.refused / (WARM_UP_SECONDS + SECONDS)
    alive = (
        9 * CAPACITY_PER_SECOND * PATIENCE_SECONDS
    )  # clients that want to be served and cannot be
    assert attempts_per_second <= 1.1 * alive / drain_seconds
    assert world.waited <= 1.2 * drain_seconds + 2.0
