"""The fair queue's single promises, each on its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dataplane.fair_queue import FairQueue, share_of_capacity, share_of_places
from gateway.dataplane.queue_order import BATCH, INTERACTIVE
from gateway.dataplane.queue_slot import QueueFullError, QueueTimeoutError, Slot, Waiter
from tests.fixtures.stepped_loop import SteppedLoop, stepped_loop


@pytest.fixture
def loop() -> Iterator[SteppedLoop]:
    with stepped_loop() as loop:
        yield loop


@dataclass
class Rig:
    """A queue, and tasks that wait in it."""

    loop: SteppedLoop
    capacity: int | None = 1
    served: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = FairQueue(self.loop, self.capacity)

    def enter(
        self,
        organization: str = "a",
        *,
        weight: float = 1.0,
        priority: str = INTERACTIVE,
        cost: float = 10.0,
        size: int = 100,
        deadline_seconds: float = 30.0,
    ) -> Waiter:
        return self.queue.enter(
            route_id="route",
            organization_id=organization,
            weight=weight,
            priority=priority,
            cost=cost,
            size=size,
            deadline_seconds=deadline_seconds,
        )

    def wait(self, waiter: Waiter) -> asyncio.Task[Slot]:
        async def slot() -> Slot:
            slot = await waiter
            self.served.append(waiter.organization_id)
            return slot

        task = self.loop.create_task(slot())
        self.loop.step()
        return task

    def hold(self, cost: float = 10.0) -> Slot:
        slot = self.queue.try_enter(cost)
        assert slot is not None
        return slot

    def serve(self, tasks: list[asyncio.Task[Slot]], seconds: float) -> None:
        """Let each run for so long, as slots come free."""
        open_tasks = list(tasks)
        while open_tasks:
            self.loop.settle()
            running = [task for task in open_tasks if task.done()]
            assert running
            self.loop.advance(seconds)
            for task in running:
                open_tasks.remove(task)
                task.result().leave()


def test_a_free_slot_is_given_at_once(loop: SteppedLoop) -> None:
    rig = Rig(loop)
    slot = rig.hold()
    assert rig.queue.try_enter(1.0) is None
    slot.leave()
    assert rig.wait(rig.enter()).done()
    assert (rig.queue.running, rig.queue.waiting) == (1, 0)


def test_without_a_capacity_nobody_waits(loop: SteppedLoop) -> None:
    rig = Rig(loop, capacity=None)
    assert all(rig.queue.try_enter(1.0) for _ in range(1000))


def test_removing_the_capacity_lets_everybody_in(loop: SteppedLoop) -> None:
    rig = Rig(loop)
    rig.hold()
    tasks = [rig.wait(rig.enter()) for _ in range(5)]
    rig.queue.set_capacity(3)
    loop.settle()
    assert [task.done() for task in tasks] == [True, True, False, False, False]
    rig.queue.set_capacity(None)
    loop.settle()
    assert all(task.done() for task in tasks)
    assert rig.queue.running == 6


def test_leaving_twice_frees_one_slot(loop: SteppedLoop) -> None:
    rig = Rig(loop)
    slot = rig.hold()
    tasks = [rig.wait(rig.enter()) for _ in range(2)]
    slot.leave()
    slot.leave()
    slot.withdraw()
    loop.settle()
    assert [task.done() for task in tasks] == [True, False]


def test_cancelled_in_the_moment_of_its_turn_it_hands_on_the_slot(loop: SteppedLoop) -> None:
    rig = Rig(loop)
    slot = rig.hold()
    first, second = rig.wait(rig.enter()), rig.wait(rig.enter())
    slot.leave()  # the first has been woken and has not run
    first.cancel()
    loop.settle()
    assert first.cancelled()
    assert second.done()
    assert rig.queue.running == 1


def test_cancelled_before_its_turn_it_is_passed_over(loop: SteppedLoop) -> None:
    rig = Rig(loop)
    slot = rig.hold()
    first, second = rig.wait(rig.enter()), rig.wait(rig.enter())
    first.cancel()  # and it has not run when the slot comes free
    slot.leave()
    loop.settle()
    assert first.cancelled()
    assert second.done()
    assert (rig.queue.running, rig.queue.waiting) == (1, 0)


def test_a_client_that_leaves_goes_at_once(loop: SteppedLoop) -> None:
    rig = Rig(loop)
    slot = rig.hold()
    waiter = rig.enter()
    task = rig.wait(waiter)
    waiter.abandon(ConnectionError("left"))
    assert rig.queue.waiting == 0
    loop.settle()
    assert isinstance(task.exception(), ConnectionError)
    woken = rig.enter()
    task = rig.wait(woken)
    slot.leave()
    woken.abandon(ConnectionError("left"))  # the slot was on its way
    assert rig.queue.running == 0
    loop.settle()
    assert isinstance(task.exception(), ConnectionError)
    woken.abandon(ConnectionError("left"))  # does nothing any more


def test_the_deadline_ends_the_wait(loop: SteppedLoop) -> None:
    rig = Rig(loop)
    slot = rig.hold()
    task = rig.wait(rig.enter(deadline_seconds=5.0))
    loop.advance(4.5)
    assert not task.done()
    loop.advance(1.0)
    assert isinstance(task.exception(), QueueTimeoutError)
    assert rig.queue.waiting == 0
    slot.leave()
    assert rig.queue.running == 0


def test_a_full_queue_refuses(loop: SteppedLoop) -> None:
    rig = Rig(loop)
    rig.hold()
    rig.wait(rig.enter(size=1))
    with pytest.raises(QueueFullError):
        rig.enter(size=1)
    with pytest.raises(QueueFullError):
        rig.enter("b", size=0)
    assert rig.queue.waiting == 1


def test_who_holds_the_most_places_gives_way(loop: SteppedLoop) -> None:
    rig = Rig(loop)
    rig.hold()
    many = [rig.wait(rig.enter("many", size=4)) for _ in range(4)]
    few = [rig.wait(rig.enter("few", size=4)) for _ in range(2)]
    loop.settle()
    refused = [task for task in many if task.done()]
    assert refused == many[2:]  # the newest of them
    assert all(isinstance(task.exception(), QueueFullError) for task in refused)
    assert not any(task.done() for task in few)
    with pytest.raises(QueueFullError):  # now they are equal
        rig.enter("few", size=4)


def test_places_count_by_weight(loop: SteppedLoop) -> None:
    rig = Rig(loop)
    rig.hold()
    for _ in range(6):
        rig.wait(rig.enter("heavy", weight=3.0, size=8))
    for _ in range(2):
        rig.wait(rig.enter("light", weight=1.0, size=8))
    with pytest.raises(QueueFullError):
        rig.enter("light", weight=1.0, size=8)
    with pytest.raises(QueueFullError):
        rig.enter("heavy", weight=3.0, size=8)


@settings(deadline=None)
@given(
    capacity=st.integers(1, 4),
    seconds=st.sampled_from([0.5, 2.0, 7.5]),
    costs=st.lists(st.floats(10.0, 1000.0), min_size=4, max_size=30),
)
def test_retry_after_is_true(capacity: int, seconds: float, costs: list[float]) -> None:
    """After so long all who waited are running, if nobody else comes and costs tell durations."""
    with stepped_loop() as loop:
        rig = Rig(loop, capacity)
        cost = sum(costs) / len(costs)
        warm_up = [rig.wait(rig.enter(cost=cost, deadline_seconds=1e6)) for _ in range(8)]
        rig.serve(warm_up, seconds)
        tasks = [rig.wait(rig.enter(cost=cost, deadline_seconds=1e6)) for _ in costs]
        if rig.queue.waiting == 0:
            return
        with pytest.raises(QueueFullError) as refusal:
            rig.enter(size=rig.queue.waiting, cost=cost)
        began_at = loop.now
        ends_at: dict[asyncio.Task[Slot], float] = {}
        while rig.queue.waiting:
            for task in tasks:
                if task.done() and task not in ends_at:
                    ends_at[task] = loop.now + seconds
            loop.advance(0.25)
            for task, end in ends_at.items():
                if loop.now >= end:
                    task.result().leave()
            loop.settle()
        took = loop.now - began_at
        told = refusal.value.retry_after_seconds
        assert told >= 1.0
        assert took <= told + seconds
        assert told <= max(1.0, took + 2 * seconds)


def test_retry_after_without_any_measure_is_a_second(loop: SteppedLoop) -> None:
    rig = Rig(loop)
    rig.hold()
    with pytest.raises(QueueFullError) as refusal:
        rig.enter(size=0)
    assert refusal.value.retry_after_seconds == 1.0


def test_interactive_does_not_wait_for_all_of_batch(loop: SteppedLoop) -> None:
    rig = Rig(loop)
    slot = rig.hold()
    loop.advance(10.0)
    slot.leave()  # 1 a second
    rig.hold()
    for _ in range(50):
        rig.wait(rig.enter("b", priority=BATCH))
    rig.wait(rig.enter("a", priority=INTERACTIVE))
    spare = 10.0 / 4
    assert rig.queue.retry_after_seconds(INTERACTIVE) == pytest.approx(10 / 0.9 + 10 + spare)
    assert rig.queue.retry_after_seconds(BATCH) == pytest.approx(520.0 + spare)


@pytest.mark.parametrize("is_measured", [True, False])
def test_what_was_cut_off_is_charged_by_its_time(loop: SteppedLoop, *, is_measured: bool) -> None:
    """An answer in one piece tells nothing when it is cut: not all that was guessed is charged."""
    rig = Rig(loop)
    slot = rig.hold(100.0)
    tasks = {
        name: [rig.wait(rig.enter(name, cost=1000.0, deadline_seconds=1e6)) for _ in range(20)]
        for name in ("cut", "whole")
    }
    loop.advance(2.0)
    slot.leave(100.0 if is_measured else None)  # 50 a second, which is what is assumed, too
    held = {"cut": 1.0, "whole": 10.0}
    spent = dict.fromkeys(tasks, 0.0)
    for _ in range(22):
        loop.settle()
        [(name, task)] = [(name, each[0]) for name, each in tasks.items() if each[0].done()]
        del tasks[name][0]
        loop.advance(held[name])
        spent[name] += held[name]
        task.result().leave(500.0 if name == "whole" else None)
    assert abs(spent["cut"] - spent["whole"]) <= 10.0


def test_who_leaves_before_the_end_starves_nobody(loop: SteppedLoop) -> None:
    """Whose answers are guessed as short, and who asks for long ones and cuts them, pays for the time."""
    rig = Rig(loop)
    slot = rig.hold(100.0)
    costs = {"cheat": 20.0, "honest": 500.0}
    tasks = {
        name: [rig.wait(rig.enter(name, cost=cost, deadline_seconds=1e6)) for _ in range(40)]
        for name, cost in costs.items()
    }
    loop.advance(2.0)
    slot.leave(100.0)  # 50 a second
    spent = dict.fromkeys(tasks, 0.0)
    for _ in range(40):
        loop.settle()
        [(name, task)] = [(name, each[0]) for name, each in tasks.items() if each[0].done()]
        del tasks[name][0]
        loop.advance(10.0 if name == "honest" else 9.0)
        spent[name] += 10.0 if name == "honest" else 9.0
        task.result().leave(500.0 if name == "honest" else None)
    assert abs(spent["cheat"] - spent["honest"]) <= 20.0


@settings(deadline=None)
@given(capacity=st.integers(1, 200), workers=st.integers(1, 32))
def test_shares_add_up_and_none_is_zero(capacity: int, workers: int) -> None:
    shares = [share_of_capacity(capacity, workers, index) for index in range(workers)]
    known = [share for share in shares if share is not None]
    assert sum(known) == max(capacity, workers)
    assert max(known) - min(known) <= 1
    assert min(known) >= 1


@settings(deadline=None)
@given(size=st.integers(1, 200), workers=st.integers(1, 32))
def test_places_are_shared_like_a_capacity(size: int, workers: int) -> None:
    shares = [share_of_places(size, workers, index) for index in range(workers)]
    assert sum(shares) == max(size, workers)
    assert max(shares) - min(shares) <= 1
    assert min(shares) >= 1
    assert share_of_places(0, workers, workers - 1) == 0


def test_no_capacity_has_no_shares() -> None:
    assert share_of_capacity(None, 4, 3) is None
    with pytest.raises(ValueError, match="worker"):
        share_of_capacity(1, 2, 2)


def test_a_capacity_of_nothing_is_refused(loop: SteppedLoop) -> None:
    with pytest.raises(ValueError, match="capacity"):
        FairQueue(loop, 0)
