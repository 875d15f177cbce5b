"""The breaker: what opens it, what heals it, and what says nothing of the engine."""

from __future__ import annotations

import pytest

from gateway.snapshot.model import BreakerPolicy
from routing.circuit_breaker import (
    MAX_COOL_DOWN_SECONDS,
    MAX_OPEN_FACTOR,
    BreakerState,
    CircuitBreaker,
)

NEVER_BY_SHARE = BreakerPolicy(failures=3, failure_share=2.0, open_seconds=2.0)


def fail(breaker: CircuitBreaker, now: float, times: int = 1) -> None:
    for _ in range(times):
        breaker.fail(breaker.begin(now), now)


def succeed(breaker: CircuitBreaker, now: float, times: int = 1) -> None:
    for _ in range(times):
        breaker.succeed(breaker.begin(now), now)


def test_failures_in_a_row_open_it_and_a_success_between_them_does_not() -> None:
    breaker = CircuitBreaker(NEVER_BY_SHARE)
    fail(breaker, 1.0, 2)
    succeed(breaker, 1.0)
    fail(breaker, 1.0, 2)
    assert breaker.is_allowing(1.0)
    fail(breaker, 1.0)
    assert not breaker.is_allowing(2.9)
    assert breaker.state_at(2.9) is BreakerState.OPEN
    assert breaker.state_at(3.0) is BreakerState.HALF_OPEN


def test_a_share_of_failures_opens_it_once_there_are_ten() -> None:
    breaker = CircuitBreaker(BreakerPolicy(failures=100, failure_share=0.5))
    for _ in range(4):
        succeed(breaker, 1.0)
        fail(breaker, 1.0)
    succeed(breaker, 1.0)
    assert breaker.is_allowing(1.0)  # nine
    fail(breaker, 1.0)
    assert not breaker.is_allowing(1.0)


def test_failures_of_more_than_ten_seconds_ago_do_not_count() -> None:
    breaker = CircuitBreaker(BreakerPolicy(failures=100, failure_share=0.5))
    fail(breaker, 1.0, 9)
    succeed(breaker, 11.5, 9)
    fail(breaker, 11.5)
    assert breaker.is_allowing(11.5)
    fail(breaker, 12.0, 8)
    assert not breaker.is_allowing(12.0)


def test_exactly_one_request_tries_it_and_its_success_closes_it() -> None:
    breaker = CircuitBreaker(NEVER_BY_SHARE)
    fail(breaker, 0.0, 3)
    assert breaker.is_allowing(2.0)
    trial = breaker.begin(2.0)
    assert not breaker.is_allowing(2.0)
    assert breaker.begin(2.0) != trial
    breaker.succeed(trial, 3.0)
    assert breaker.is_allowing(3.0)
    assert breaker.state_at(3.0) is BreakerState.CLOSED


def test_a_failed_trial_opens_for_twice_as_long_up_to_a_bound() -> None:
    breaker = CircuitBreaker(NEVER_BY_SHARE)
    fail(breaker, 0.0, 3)
    now = 0.0
    for factor in (1, 2, 4, 8, 16, 16, 16):
        assert breaker.open_until == now + 2.0 * min(factor, MAX_OPEN_FACTOR)
        now = breaker.open_until or 0.0
        fail(breaker, now)
    now = breaker.open_until or 0.0
    succeed(breaker, now)
    fail(breaker, now, 3)
    assert breaker.open_until == now + 2.0  # healed: from the start again


def test_a_trial_that_says_nothing_lets_another_try() -> None:
    breaker = CircuitBreaker(NEVER_BY_SHARE)
    fail(breaker, 0.0, 3)
    breaker.let_go(breaker.begin(2.0))
    assert breaker.is_allowing(2.0)
    assert breaker.state_at(2.0) is BreakerState.HALF_OPEN


def test_what_began_before_it_opened_neither_heals_nor_hurts() -> None:
    breaker = CircuitBreaker(NEVER_BY_SHARE)
    early = [breaker.begin(0.0) for _ in range(4)]
    fail(breaker, 0.0, 3)
    breaker.succeed(early[0], 1.0)
    assert not breaker.is_allowing(1.0)
    succeed(breaker, 2.0)
    for ticket in early[1:]:
        breaker.fail(ticket, 2.0)
    assert breaker.is_allowing(2.0)


def test_a_last_resort_that_works_closes_it_and_one_that_fails_changes_nothing() -> None:
    breaker = CircuitBreaker(NEVER_BY_SHARE)
    fail(breaker, 0.0, 3)
    fail(breaker, 1.0)
    assert breaker.open_until == 2.0
    succeed(breaker, 1.5)
    assert breaker.is_allowing(1.5)


def test_a_last_resort_that_fails_is_not_taken_for_the_trial() -> None:
    breaker = CircuitBreaker(NEVER_BY_SHARE)
    fail(breaker, 0.0, 3)
    last_resort = breaker.begin(1.0)
    breaker.begin(2.0)  # the trial
    breaker.fail(last_resort, 2.0)
    breaker.let_go(last_resort)
    assert breaker.open_until == 2.0
    assert not breaker.is_allowing(2.0)


def test_cooling_down_opens_nothing_and_heals_nothing() -> None:
    breaker = CircuitBreaker(NEVER_BY_SHARE)
    fail(breaker, 0.0, 2)
    breaker.cool_down(5.0, 0.0)
    assert not breaker.is_allowing(4.9)
    assert breaker.state_at(4.9) is BreakerState.CLOSED
    assert breaker.is_allowing(5.0)
    fail(breaker, 5.0)  # the third in a row
    assert not breaker.is_allowing(5.0)


@pytest.mark.parametrize(("asked", "until"), [(1e9, MAX_COOL_DOWN_SECONDS), (-3.0, 5.0)])
def test_cooling_down_is_bounded_and_never_shortened(asked: float, until: float) -> None:
    breaker = CircuitBreaker(NEVER_BY_SHARE)
    breaker.cool_down(5.0, 0.0)
    breaker.cool_down(asked, 0.0)
    assert breaker.cooling_until == until


def test_new_limits_hold_from_the_next_failure_on() -> None:
    breaker = CircuitBreaker(NEVER_BY_SHARE)
    fail(breaker, 0.0, 2)
    breaker.set_limits(BreakerPolicy(failures=10, failure_share=2.0))
    fail(breaker, 0.0)
    assert breaker.is_allowing(0.0)


def test_tripping_opens_it_whatever_its_counts_and_only_once() -> None:
    breaker = CircuitBreaker(NEVER_BY_SHARE)
    before = breaker.begin(1.0)
    breaker.trip(1.0)
    assert breaker.state_at(2.9) is BreakerState.OPEN
    breaker.trip(2.0)
    assert breaker.state_at(3.0) is BreakerState.HALF_OPEN
    breaker.fail(before, 3.0)  # an attempt from before says nothing
    trial = breaker.begin(3.0)
    assert not breaker.is_allowing(3.0)
    breaker.fail(trial, 4.0)
    assert breaker.state_at(7.9) is BreakerState.OPEN
