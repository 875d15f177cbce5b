"""The fair queue under any sequence of arrivals, departures, cancellations and changes."""

from __future__ import annotations

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.dataplane.fair_queue import FairQueue
from gateway.dataplane.queue_order import BATCH, INTERACTIVE
from gateway.dataplane.queue_slot import QueueFullError, QueueTimeoutError, Slot, Waiter
from tests.fixtures.stepped_loop import SteppedLoop

SIZE = 4
DEADLINE_SECONDS = 10.0


class LeftError(Exception):
    """The client left."""


class Request:
    """A client's request, in a task of its own."""

    def __init__(self, machine: FairQueueMachine, organization: str, priority: str) -> None:
        self.queue = machine.queue
        self.organization = organization
        self.priority = priority
        self.waiter: Waiter | None = None
        self.slot: Slot | None = None
        self.arrived_at = machine.loop.now
        self.ended: BaseException | None = None
        self.may_end = asyncio.Event()
        self.task = machine.loop.create_task(self.run())

    async def run(self) -> None:
        try:
            self.waiter = self.queue.enter(
                route_id=f"route-{self.priority}",
                organization_id=self.organization,
                weight=2.0 if self.organization == "a" else 1.0,
                priority=self.priority,
                cost=10.0,
                size=SIZE,
                deadline_seconds=DEADLINE_SECONDS,
            )
            self.slot = await self.waiter
            await self.may_end.wait()
        except (QueueFullError, QueueTimeoutError, LeftError, asyncio.CancelledError) as error:
            self.ended = error
        finally:
            if self.slot is not None:
                self.slot.leave(7.0)
                self.slot.leave(1e9)  # does nothing


class FairQueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = SteppedLoop()
        self.queue = FairQueue(self.loop, 2)
        self.requests: list[Request] = []
        self.slots: list[Slot] = []  # taken without waiting
        self.ran_before = 0

    @rule(organization=st.sampled_from("abc"), priority=st.sampled_from([INTERACTIVE, BATCH]))
    def arrive(self, organization: str, priority: str) -> None:
        self.requests.append(Request(self, organization, priority))

    @rule()
    def try_to_enter(self) -> None:
        is_free = not self.queue.waiting and (
            self.queue.capacity is None or self.queue.running < self.queue.capacity
        )
        slot = self.queue.try_enter(5.0)
        assert (slot is not None) == is_free
        if slot is not None:
            self.slots.append(slot)

    @precondition(lambda self: self.slots)
    @rule()
    def leave(self) -> None:
        self.slots.pop().leave()

    @precondition(lambda self: self.requests)
    @rule(which=st.integers(0, 30))
    def end(self, which: int) -> None:
        self.requests[which % len(self.requests)].may_end.set()

    @precondition(lambda self: self.requests)
    @rule(which=st.integers(0, 30))
    def cancel(self, which: int) -> None:
        self.requests[which % len(self.requests)].task.cancel()

    @precondition(lambda self: self.requests)
    @rule(which=st.integers(0, 30))
    def client_leaves(self, which: int) -> None:
        request = self.requests[which % len(self.requests)]
        if request.waiter is not None and request.slot is None:
            request.waiter.abandon(LeftError())
            assert not request.waiter.is_waiting or request.waiter.is_cancelled

    @rule(capacity=st.one_of(st.none(), st.integers(1, 4)))
    def change_capacity(self, capacity: int | None) -> None:
        self.queue.set_capacity(capacity)

    @rule(seconds=st.sampled_from([0.5, 4.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.loop.advance(seconds)

    @rule()
    def step(self) -> None:
        self.loop.step()

    @rule()
    def settle(self) -> None:
        self.loop.settle()
        queue = self.queue
        self.requests = [request for request in self.requests if not request.task.done()]
        holding = [request for request in self.requests if request.slot is not None]
        waiting = [request for request in self.requests if request.slot is None]
        assert queue.running == len(holding) + len(self.slots)
        assert queue.waiting == len(waiting)  # the cancelled and the late have gone
        if waiting:  # no lost wake-up
            assert queue.capacity is not None
            assert queue.running >= queue.capacity
        assert all(self.loop.now - it.arrived_at <= DEADLINE_SECONDS for it in waiting)

    @invariant()
    def never_too_many(self) -> None:
        queue = self.queue
        if queue.capacity is not None:  # what ran above a lowered capacity runs on
            assert queue.running <= max(queue.capacity, self.ran_before)
        self.ran_before = queue.running
        assert queue.waiting <= 2 * SIZE  # two routes
        assert queue.waiting_cost >= 0.0
        assert all(0 < places.taken <= SIZE for places in queue._places.values())

    def teardown(self) -> None:
        try:
            self.end_all()
        finally:
            self.loop.close()

    def end_all(self) -> None:
        for request in self.requests:
            request.may_end.set()
        for slot in self.slots:
            slot.leave()
        for _ in range(len(self.requests) + 1):
            self.loop.settle()
        assert all(request.task.done() for request in self.requests)
        assert (self.queue.running, self.queue.waiting) == (0, 0)
        assert self.queue._places == {}


FairQueueMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
TestFairQueue = FairQueueMachine.TestCase
