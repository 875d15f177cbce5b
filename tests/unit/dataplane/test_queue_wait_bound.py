"""What a queue learns of how long its clients stay, and whom it refuses therefore."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.queue_order import BATCH, INTERACTIVE
from gateway.dataplane.queue_slot import QueueTooLongError
from gateway.dataplane.queue_wait_bound import WaitBound, WaitBounds
from tests.fixtures.stepped_loop import SteppedLoop, stepped_loop
from tests.unit.dataplane.test_fair_queue import Rig


@pytest.fixture
def loop() -> Iterator[SteppedLoop]:
    with stepped_loop() as loop:
        yield loop


def test_whose_clients_all_stay_may_wait_for_ever() -> None:
    bound = WaitBound()
    for second in range(1000):
        bound.note_answered(held=1.0, now=float(second))
    assert not bound.is_bounded
    assert bound.allows(1e9, 1000.0)


@given(st.floats(min_value=0.5, max_value=500.0), st.floats(min_value=0.1, max_value=5.0))
def test_a_wait_after_which_all_are_gone_is_too_long(waited: float, held: float) -> None:
    bound, now = WaitBound(), 0.0
    for _ in range(5):
        now += waited + held
        bound.note_left(waited=waited, held=held, now=now)
    assert not bound.allows(waited, now)
    for _ in range(300):
        now += (waited + held) / 2
        bound.note_answered(held=held, now=now)
    assert bound.allows(waited, now)  # they may stay longer by now


@given(st.lists(st.booleans(), min_size=60, max_size=400))
def test_a_few_that_leave_do_not_bound_the_others(is_hasty: list[bool]) -> None:
    """So while what was done for them is a small part of all that is done, in any order."""
    bound, wasted, useful = WaitBound(), 0.0, 0.0
    for number, wants_to_leave in enumerate(is_hasty):
        wasted, useful = 0.95 * wasted, 0.95 * useful
        if wants_to_leave and 25 * (wasted + 1.0) < useful:
            wasted += 1.0
            bound.note_left(waited=0.2, held=1.0, now=float(number))
        else:
            useful += 2.0
            bound.note_answered(held=2.0, now=float(number))
        assert not bound.is_bounded


@pytest.mark.parametrize("is_at_once", [True, False], ids=["at once", "after a moment"])
def test_who_cancels_whether_it_waits_or_not_bounds_nothing(is_at_once: bool) -> None:
    """Editors that complete what is typed leave half of their requests, with the next key."""
    bound, now = WaitBound(), 0.0
    for number in range(500):
        now += 0.1
        if is_at_once:
            bound.note_at_once(held=0.3, is_answered=False)
            bound.note_at_once(held=1.5, is_answered=True)
        else:
            bound.note_left(waited=0.01, held=0.3, now=now)
            bound.note_at_once(held=1.5, is_answered=True)
        if number % 5 == 0 and number >= 20:
            bound.note_answered(held=1.5, now=now)
            bound.note_left(waited=0.5, held=0.3, now=now)
        assert not bound.is_bounded
    for _ in range(30):  # but where hardly anybody is answered behind a wait, that is the reason
        now += 3.0
        bound.note_left(waited=2.0, held=0.5, now=now)
    assert not bound.allows(2.0, now)


def test_those_who_came_before_a_step_do_not_make_another() -> None:
    """Else all who wait already would count one by one, and the bound fall to nothing."""
    bound = WaitBound()
    for number in range(100):
        bound.note_left(waited=10.0 + number / 100, held=0.5, now=100.0 + number / 100)
    assert bound.allows(7.9, 101.0)
    assert not bound.allows(8.1, 101.0)
    bound.note_left(waited=7.9, held=0.5, now=109.0)  # it came after the step
    assert not bound.allows(7.0, 109.0)


def test_an_expectation_that_is_too_short_is_put_right() -> None:
    """Else it would let everybody in, for as long as all of them leave."""
    bound = WaitBound()
    bound.note_left(waited=2.0, held=1.0, now=100.0)
    for _ in range(20):
        bound.note_wait(0.1, 1.0)
    assert not bound.allows(0.2, 100.0)
    assert bound.allows(0.15, 100.0)
    for _ in range(40):
        bound.note_wait(5.0, 0.5)
    assert bound.allows(1.5, 100.0)
    assert not bound.allows(2.0, 100.0)


def test_a_bound_is_forgotten_after_a_pause() -> None:
    bound = WaitBound()
    bound.note_left(waited=2.0, held=1.0, now=100.0)
    assert not bound.allows(2.0, 159.0)
    assert bound.allows(2.0, 161.0)
    bound.note_answered(held=1.0, now=161.0)
    assert not bound.is_bounded


def test_only_so_many_organizations_are_remembered() -> None:
    bounds = WaitBounds()
    first = bounds.get(BATCH, "first")
    assert bounds.get(BATCH, "first") is first
    assert bounds.get(INTERACTIVE, "first") is not first
    for number in range(2000):
        bounds.get(BATCH, f"org {number}")
    assert bounds.get(BATCH, "first") is not first


def learn(rig: Rig, waited: float) -> None:
    """Have a client of ``a`` leave just after its turn, which came after so long; ten a second."""
    for _ in range(100):
        quick = rig.hold()
        rig.loop.advance(1.0)
        quick.leave()
    running = rig.hold()
    task = rig.wait(rig.enter("a"))
    rig.loop.advance(waited)
    running.leave()
    rig.loop.settle()
    slot = task.result()
    rig.loop.advance(1.0)
    slot.leave(is_answered=False)


def enter_until_refused(rig: Rig, organization: str) -> tuple[int, QueueTooLongError]:
    for entered in range(20):
        try:
            rig.enter(organization)
        except QueueTooLongError as refusal:
            return entered, refusal
    raise AssertionError("nobody was refused")


def test_who_would_be_gone_is_refused_and_told_when_to_come(loop: SteppedLoop) -> None:
    rig = Rig(loop)
    learn(rig, 5.0)  # so that four seconds are allowed
    rig.hold()
    entered, refusal = enter_until_refused(rig, "a")  # a second each
    assert 3 <= entered <= 4
    assert entered < refusal.retry_after_seconds <= entered + 2.5
    # Another organization's clients have not left, and another class of theirs has not either.
    rig.enter("b")
    rig.enter("a", priority=BATCH)


def test_one_may_always_wait(loop: SteppedLoop) -> None:
    """Else a place would be free for a moment after each who ran, however short the bound."""
    rig = Rig(loop)
    learn(rig, 0.25)
    rig.hold()
    rig.enter("a")
    with pytest.raises(QueueTooLongError):
        rig.enter("a")


def test_an_organization_is_not_judged_by_the_queue_of_another(loop: SteppedLoop) -> None:
    """Whose turn comes soon may wait, though behind a flood the last would wait for a minute."""
    rig = Rig(loop)
    learn(rig, 5.0)
    rig.hold()
    for _ in range(60):
        rig.enter("flood")
    assert rig.queue.retry_after_seconds(INTERACTIVE) > 50.0
    entered, _ = enter_until_refused(rig, "a")
    assert 1 <= entered <= 3  # every other turn is theirs


def test_who_never_waited_says_nothing(loop: SteppedLoop) -> None:
    rig = Rig(loop)
    for _ in range(20):
        slot = rig.hold()
        loop.advance(1.0)
        slot.leave(is_answered=False)
    rig.hold()
    for _ in range(50):
        rig.enter("a")
