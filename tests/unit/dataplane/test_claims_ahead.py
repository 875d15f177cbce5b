"""What others use while claims are taken ahead counts for these at once, and for no longer than it is used."""

from __future__ import annotations

import random

import pytest

from billing.budgets.spend_feed import SpendFeed, WindowSpend
from billing.budgets.window import window_at
from gateway.dataplane.limits.local_limiter import LocalLimiter
from gateway.dataplane.limits.types import Claim, LimitPlan
from gateway.snapshot.model import Budget, RateLimit
from tests.factories.limits import (
    JOURNAL,
    UNIT,
    SetClock,
    make_budget,
    make_claim,
    make_limit,
    make_plan,
)

WIDE = make_limit("requests", 10**6, 3600, name="lim_wide")
FEW = 12  # so many close behind each other, and others are taken ahead


class Rig:
    """A limiter that has taken claims ahead on a busy plan, and another plan with the same ``rule``."""

    def __init__(self, rule: Budget | RateLimit) -> None:
        self.clock = SetClock()
        self.limiter = LocalLimiter(
            JOURNAL, monotonic_us=self.clock, wall_us=self.clock, takes_ahead=True
        )
        self.busy, self.other = make_plan(rule, WIDE), make_plan(rule)
        self.large = self.take(self.other)
        self.small = [self.take(self.busy) for _ in range(FEW)]
        assert self.limiter.counters.resolve(self.busy).ahead is not None

    def claim(self, plan: LimitPlan) -> Claim:
        return make_claim(plan, input_tokens=1, output_tokens=1, hold_nano=UNIT)

    def take(self, plan: LimitPlan) -> Claim:
        claim = self.claim(plan)
        assert self.limiter.admit(claim).refusal is None
        return claim

    def settle(self, claim: Claim, *, output: int = 1, charge: int = UNIT, point: int = 1) -> None:
        self.limiter.settle(
            claim,
            input_tokens=1,
            output_tokens=output,
            charge_nano=charge,
            journal_point=(0, point),
        )

    def ask(self, times: int) -> int:
        """Return how many of so many claims on the busy plan are admitted."""
        outcomes = [self.limiter.admit(self.claim(self.busy)) for _ in range(times)]
        return sum(outcome.refusal is None for outcome in outcomes)


@pytest.mark.parametrize("rule", [make_budget("1000"), make_limit("total_tokens", 10_000, 3600)])
def test_what_another_took_beyond_its_guess_is_waited_for(rule: Budget | RateLimit) -> None:
    rig = Rig(rule)
    rig.settle(rig.large, output=20_000, charge=1_000 * UNIT)
    assert rig.ask(100) == 0


def test_tokens_that_a_stream_is_given_on_top_are_waited_for() -> None:
    rig = Rig(make_limit("total_tokens", 10_000, 3600))
    rig.limiter.top_up(rig.large, output_tokens=20_000, hold_nano=0)
    assert rig.ask(100) == 0


def test_a_charge_above_all_that_is_held_is_no_longer_left() -> None:
    """One of the busy plan itself, whose price went up: a fallback's."""
    rig = Rig(make_budget("1000"))
    rig.settle(rig.small[0], charge=1_000 * UNIT)
    assert rig.ask(100) == 0


def test_a_soft_budget_warns_as_soon_as_it_is_used_up() -> None:
    rig = Rig(make_budget("1000", is_hard=False))
    rig.settle(rig.large, charge=1_000 * UNIT)
    for _ in range(40):
        assert rig.limiter.admit(rig.claim(rig.busy)).warnings


def test_a_soft_budget_does_not_warn_for_what_is_only_taken_ahead() -> None:
    rig = Rig(make_budget("200", is_hard=False))
    used = FEW + 1
    while used < 200:
        assert not rig.limiter.admit(rig.claim(rig.other)).warnings
        used += 1
    assert rig.limiter.admit(rig.claim(rig.other)).warnings


@pytest.mark.parametrize("meanwhile", [0, 5])
def test_what_was_used_drains_from_when_it_was_used(meanwhile: int) -> None:
    """A burst, and a minute later another: of the first nothing is left by then."""
    rig = Rig(make_limit("requests", 200, 60, scope="organization"))
    rig.ask(20)
    for _ in range(meanwhile):  # another key under the same limit
        rig.clock.advance(2)
        rig.take(rig.other)
    rig.clock.advance(70)
    assert rig.ask(200) == 200
    assert rig.ask(1) == 0


def test_a_late_end_is_debited_when_it_ends() -> None:
    rig = Rig(make_limit("output_tokens", 1_000, 60))
    rig.clock.advance(70)  # drained by now
    for claim in rig.small[:10]:
        rig.settle(claim, output=1)
    rig.settle(rig.small[10], output=31)
    outcome = rig.limiter.peek(rig.busy)
    assert outcome.tokens is not None
    assert outcome.tokens.remaining == 970


def test_a_feed_covers_nothing_that_lies_behind_it() -> None:
    budget = make_budget("10000")
    rig = Rig(budget)
    rig.settle(rig.small[0], point=5)  # with others, later
    rig.settle(rig.large, charge=100 * UNIT, point=6)  # by itself
    start_us = window_at(budget.window, budget.time_zone, rig.clock()).start_us
    spent = {budget.id: WindowSpend(start_us, "1")}
    rig.limiter.use_feed(SpendFeed(1, {JOURNAL: (0, 5)}, spent=spent))
    used = rig.limiter.counters.budgets[budget.id].current.used
    assert used >= (1 + 100 + FEW - 1) * UNIT


class Both:
    """A limiter that takes claims ahead beside one that does not, told the same."""

    SHARED = (
        make_limit("requests", 300, 3600, name="lim_all", scope="organization"),
        make_limit("total_tokens", 9_000, 3600, name="lim_tokens", scope="organization"),
    )
    HARD = make_budget("200", name="bud_hard")
    SOFT = make_budget("80", "lifetime", name="bud_soft", is_hard=False)
    PLANS = (
        make_plan(*SHARED, HARD),
        make_plan(*SHARED, HARD, SOFT, make_limit("output_tokens", 4_000, 3600, name="lim_out")),
        make_plan(SHARED[1], SOFT, make_limit("in_flight", 60, name="lim_flight")),
    )

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        clock = SetClock()
        self.limiters = [
            LocalLimiter(JOURNAL, monotonic_us=clock, wall_us=clock, takes_ahead=takes_ahead)
            for takes_ahead in (False, True)
        ]
        self.running: list[list[Claim]] = []
        self.points = 0

    def ask(self) -> None:
        rng = self.rng
        plan, times = rng.choice(self.PLANS), rng.randrange(1, 14)
        tokens, output, hold = rng.randrange(1, 12), rng.randrange(1, 12), rng.randrange(1, UNIT)
        for _ in range(times):
            pair = [
                make_claim(plan, input_tokens=tokens, output_tokens=output, hold_nano=hold)
                for _ in self.limiters
            ]
            outcomes = [one.admit(claim) for one, claim in zip(self.limiters, pair, strict=True)]
            assert outcomes[0].refusal == outcomes[1].refusal
            assert outcomes[0].warnings == outcomes[1].warnings
            if outcomes[0].refusal is None:
                self.running.append(pair)

    def end(self) -> None:
        rng = self.rng
        pair = self.running.pop(rng.randrange(len(self.running)))
        self.points += 1
        is_much = rng.random() < 0.1
        charge = 30 * UNIT if is_much else rng.choice([0, UNIT // 3, UNIT])
        tokens, output = rng.randrange(15), 500 if is_much else rng.choice([0, 3, 15])
        for limiter, claim in zip(self.limiters, pair, strict=True):
            limiter.settle(
                claim,
                input_tokens=tokens,
                output_tokens=output,
                charge_nano=charge,
                journal_point=(0, self.points),
            )

    def go_on(self) -> None:
        pair = self.rng.choice(self.running)
        more, hold = self.rng.choice([1, 50, 3_000]), self.rng.randrange(UNIT)
        struck = [
            limiter.top_up(claim, output_tokens=more, hold_nano=hold)
            for limiter, claim in zip(self.limiters, pair, strict=True)
        ]
        assert struck[0] == struck[1]


@pytest.mark.parametrize("seed", range(30))
def test_every_decision_and_warning_is_that_of_a_limiter_that_takes_nothing_ahead(
    seed: int,
) -> None:
    rng = random.Random(seed)
    both = Both(rng)
    for _ in range(300):
        step = rng.random()
        if step < 0.6 or not both.running:
            both.ask()
        elif step < 0.97:
            both.end()
        else:
            both.go_on()
        if rng.random() < 0.05:
            for plan in both.PLANS:
                assert both.limiters[0].peek(plan) == both.limiters[1].peek(plan)
