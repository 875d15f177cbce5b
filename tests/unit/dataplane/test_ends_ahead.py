"""What ends while claims are taken ahead, beside a limiter that takes nothing ahead: the same comes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from billing.budgets.spend_feed import SpendFeed, WindowSpend
from billing.budgets.window import window_at
from gateway.dataplane.limits.local_limiter import LocalLimiter
from gateway.dataplane.limits.types import Claim, LimitPlan
from tests.factories.limits import (
    JOURNAL,
    UNIT,
    SetClock,
    make_budget,
    make_claim,
    make_limit,
    make_plan,
)

BUSY = 12  # so many close behind each other, and others are taken ahead
T = TypeVar("T")


class Rig:
    """A limiter and its clock."""

    def __init__(self, *, takes_ahead: bool) -> None:
        self.clock = SetClock()
        self.limiter = LocalLimiter(
            JOURNAL, monotonic_us=self.clock, wall_us=self.clock, takes_ahead=takes_ahead
        )

    def admit(self, plan: LimitPlan, **counts: int) -> Claim | None:
        claim = make_claim(plan, started_at_us=self.clock(), **counts)
        return claim if self.limiter.admit(claim).refusal is None else None

    def take(self, plan: LimitPlan, times: int, **counts: int) -> list[Claim]:
        claims = [self.admit(plan, **counts) for _ in range(times)]
        taken = [claim for claim in claims if claim is not None]
        assert len(taken) == times
        return taken

    def settle(self, claim: Claim, output: int = 0, charge: int = 0, point: int = 1) -> None:
        self.limiter.settle(
            claim,
            input_tokens=0,
            output_tokens=output,
            charge_nano=charge,
            journal_point=(0, point),
        )


def play_both(play: Callable[[Rig], T]) -> tuple[T, T]:
    """Return what comes of a play without and with claims taken ahead."""
    return play(Rig(takes_ahead=False)), play(Rig(takes_ahead=True))


@pytest.mark.parametrize(("size", "times", "admitted"), [(50, 2000, 400), (6_000, 60, 3)])
def test_what_has_leaked_out_of_a_bucket_is_no_room(size: int, times: int, admitted: int) -> None:
    """Long answers end with less than was reserved, when their reservations have drained long ago."""
    plan = make_plan(make_limit("output_tokens", 20_000, 1))

    def play(rig: Rig) -> int:
        old = []
        for _ in range(50):
            old += rig.take(plan, 1, output_tokens=9_000)
            rig.clock.advance(1)
        rig.clock.advance(5)
        rig.take(plan, BUSY, output_tokens=1)
        for claim in old:
            rig.settle(claim, 10)
        return sum(rig.admit(plan, output_tokens=size) is not None for _ in range(times))

    assert play_both(play) == (admitted, admitted)


def test_for_how_long_they_held_is_learned_alike() -> None:
    plan = make_plan(make_limit("in_flight", 200), make_budget("100"))

    def play(rig: Rig) -> tuple[float, float]:
        for number in range(20):
            claims = rig.take(plan, 15, hold_nano=UNIT // 1000)
            rig.clock.advance(20)
            for claim in claims:
                rig.settle(claim, 0, UNIT // 1000, number + 1)
                rig.clock.advance(0.01)
        rig.limiter.peek(plan)
        resolved = rig.limiter.counters.resolve(plan)
        return resolved.leases[0].mean_hold_ms, resolved.budgets[0].mean_hold_ms

    exact, ahead = play_both(play)
    assert ahead == pytest.approx(exact, rel=0.01)
    assert exact[0] > 19_000


def test_who_is_charged_nothing_does_not_cover_the_others_charges() -> None:
    budget = make_budget("1")
    plan = make_plan(budget)

    def play(rig: Rig) -> tuple[int, int, int]:
        claims = rig.take(plan, BUSY, hold_nano=UNIT // 500)
        for number, claim in enumerate(claims[:6]):
            rig.settle(claim, 0, UNIT // 500, 100 + number)
        rig.settle(claims[6], point=0)
        start_us = window_at(budget.window, budget.time_zone, rig.clock()).start_us
        spent = {budget.id: WindowSpend(start_us, "0")}
        rig.limiter.use_feed(SpendFeed(1, {JOURNAL: (0, 50)}, spent=spent))
        (window,) = rig.limiter.counters.resolve(plan).find_windows(rig.clock())
        return window.used, window.held, window.unposted

    exact, ahead = play_both(play)
    assert exact == ahead
    assert exact[2] == 6 * UNIT // 500


def test_what_costs_nothing_is_refused_too_once_a_budget_is_used_up() -> None:
    budget = make_budget("1")
    free, paid = make_plan(budget, make_limit("requests", 10**6, 3600)), make_plan(budget)

    def play(rig: Rig) -> int:
        rig.take(free, BUSY, hold_nano=0)
        rig.take(paid, 1, hold_nano=UNIT)  # all of it
        return sum(rig.admit(free, hold_nano=0) is not None for _ in range(50))

    assert play_both(play) == (0, 0)
