"""Claims that are taken ahead change no decision: a limiter that does beside one that does not."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billing.budgets.spend_feed import SpendFeed, WindowSpend
from billing.budgets.window import window_at
from gateway.dataplane.limit_replies import limit_lines
from gateway.dataplane.limits import resolved_plan, taken_ahead
from gateway.dataplane.limits.local_limiter import LocalLimiter
from gateway.dataplane.limits.types import Claim, LimitPlan, Outcome
from tests.factories.limits import (
    JOURNAL,
    UNIT,
    SetClock,
    make_budget,
    make_claim,
    make_limit,
    make_plan,
    snapshot_of,
)

SHARED = (
    make_limit("requests", 70, 3600, name="lim_all", scope="organization"),
    make_limit("total_tokens", 5_000, 3600, name="lim_tokens", scope="organization"),
)
MONEY = make_budget("25", name="bud_all")
REMAINING = re.compile(rb"remaining-(?:requests|tokens): (\d+)")
PLANS = (
    make_plan(*SHARED, MONEY, make_limit("requests", 50, 3600, name="lim_a")),
    make_plan(*SHARED, MONEY, make_limit("in_flight", 25, name="lim_b")),
    make_plan(*SHARED, make_limit("output_tokens", 3_000, 60, name="lim_c")),
)


class Both:
    """Two limiters that are told the same."""

    def __init__(self) -> None:
        self.clock = SetClock()
        self.exact, self.ahead = (
            LocalLimiter(
                JOURNAL, monotonic_us=self.clock, wall_us=self.clock, takes_ahead=takes_ahead
            )
            for takes_ahead in (False, True)
        )
        self.running: list[tuple[Claim, Claim]] = []
        self.admitted = 0
        self.points = 0
        self.spent = 0

    def admit(self, plan: LimitPlan, **counts: int) -> tuple[Outcome, Outcome]:
        pair = [make_claim(plan, started_at_us=self.clock(), **counts) for _ in range(2)]
        outcomes = self.exact.admit(pair[0]), self.ahead.admit(pair[1])
        if outcomes[0].refusal is None and outcomes[1].refusal is None:
            self.running.append((pair[0], pair[1]))
            self.admitted += 1
        return outcomes

    def settle(self, at: int, tokens: int, output: int, charge: int) -> None:
        pair = self.running.pop(at % len(self.running))
        self.points += 1
        self.spent += charge
        for limiter, claim in zip((self.exact, self.ahead), pair, strict=True):
            limiter.settle(
                claim,
                input_tokens=tokens,
                output_tokens=output,
                charge_nano=charge,
                journal_point=(0, self.points),
            )

    def use_feed(self) -> None:
        start_us = window_at(MONEY.window, MONEY.time_zone, self.clock()).start_us
        spent = {MONEY.id: WindowSpend(start_us, str(self.spent / UNIT))}
        for limiter in (self.exact, self.ahead):
            feed = SpendFeed(self.points + 1, {JOURNAL: (0, self.points)}, spent=spent)
            limiter.use_feed(feed)


ADMITS = st.tuples(
    *(st.just("admit"), st.integers(0, 2), st.integers(1, 60), st.integers(1, 90)),
    st.integers(1, 30),
)
SETTLES = st.tuples(st.just("settle"), st.integers(0, 99), st.integers(0, 90), st.integers(0, 200))
RARE = st.one_of(
    st.tuples(st.just("undo"), st.integers(0, 99)),
    st.tuples(st.just("top_up"), st.integers(0, 99), st.integers(1, 60)),
    st.tuples(st.just("feed")),
    st.tuples(st.just("peek"), st.integers(0, 2)),
    st.tuples(st.just("snapshot"), st.integers(30, 90)),
)
STEPS = st.lists(
    st.one_of(ADMITS, ADMITS, ADMITS, SETTLES, SETTLES, RARE), min_size=12, max_size=60
)


@pytest.fixture(autouse=True)
def always_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolved_plan, "_BUSY_CLAIMS", 1)
    monkeypatch.setattr(taken_ahead, "CLAIMS", 4)


def play(both: Both, name: str, values: list[int]) -> None:
    """Tell both of one step; what they answer is the same."""
    pair = both.running[values[0] % len(both.running)] if both.running and values else None
    if name == "admit":
        counts = {"input_tokens": values[1], "output_tokens": values[2], "hold_nano": UNIT // 2}
        for _ in range(values[3]):
            exact, ahead = both.admit(PLANS[values[0]], **counts)
            assert exact.refusal == ahead.refusal
            assert exact.refusal is None or exact.requests == ahead.requests
            assert exact.warnings == ahead.warnings
    elif name == "feed":
        both.use_feed()
    elif name == "peek":
        assert both.exact.peek(PLANS[values[0]]) == both.ahead.peek(PLANS[values[0]])
    elif name == "snapshot":
        changed = make_limit("requests", values[0], 3600, name="lim_a")
        parts = {part.id: part for plan in PLANS for part in (*plan.limits, *plan.budgets)}
        for limiter in (both.exact, both.ahead):
            limiter.use_snapshot(snapshot_of([*({**parts, "lim_a": changed}).values()]))
    elif pair is None:
        return
    elif name == "settle":
        charge = (values[1] + values[2]) * UNIT // 300
        both.settle(values[0], values[1], values[2], charge)
    elif name == "undo":
        both.running.remove(pair)
        both.exact.undo(pair[0])
        both.ahead.undo(pair[1])
    else:
        more = {"output_tokens": values[1], "hold_nano": values[1] * UNIT // 9}
        assert both.exact.top_up(pair[0], **more) == both.ahead.top_up(pair[1], **more)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_every_decision_is_the_same(steps: list[Any]) -> None:
    both = Both()
    for name, *values in steps:
        play(both, name, values)
    while both.running:
        both.settle(0, 10, 10, UNIT // 100)
    for plan in PLANS:
        assert both.exact.peek(plan) == both.ahead.peek(plan)


def test_what_is_told_of_the_room_left_is_as_it_is() -> None:
    both = Both()
    plan = make_plan(*SHARED)
    for _ in range(40):
        exact, ahead = both.admit(plan, input_tokens=7, output_tokens=5)
        told = [REMAINING.findall(limit_lines(outcome)) for outcome in (exact, ahead)]
        assert told[0] == told[1]
        assert len(told[0]) == 2


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 40_000), st.integers(1, 40), st.booleans()),
        min_size=5,
        max_size=80,
    )
)
def test_while_time_passes_no_limit_lets_more_through(steps: list[tuple[int, int, bool]]) -> None:
    """A bucket that runs empty while claims are taken ahead drains later, and never sooner."""
    both = Both()
    plan = make_plan(make_limit("total_tokens", 5_000, 1), make_limit("requests", 500, 1))
    for passed_us, times, settles in steps:
        both.clock.at_us += passed_us
        for _ in range(times):
            exact, ahead = both.admit(plan, input_tokens=9, output_tokens=9)
            if exact.refusal is not None:
                assert ahead.refusal is not None
            elif ahead.refusal is not None:  # it drained later: from here on it may be fuller
                return
        if settles and both.running:
            both.settle(0, 9, 30, 0)
        left = [limiter.peek(plan) for limiter in (both.exact, both.ahead)] if settles else []
        if left:
            assert left[0].tokens is not None
            assert left[1].tokens is not None
            assert left[1].tokens.remaining <= left[0].tokens.remaining


def test_what_an_idle_plan_has_taken_ahead_is_nobodys_refusal() -> None:
    both = Both()
    for _ in range(20):
        both.admit(PLANS[0], input_tokens=1, output_tokens=1)
    assert both.ahead.counters.resolve(PLANS[0]).ahead is not None
    outcomes = [both.admit(PLANS[2], input_tokens=1, output_tokens=1) for _ in range(80)]
    assert sum(ahead.refusal is None for _, ahead in outcomes) == 50
    assert both.ahead.counters.resolve(PLANS[0]).ahead is None


def test_a_place_in_flight_is_free_as_soon_as_its_request_has_ended() -> None:
    both = Both()
    plan = make_plan(make_limit("requests", 1_000, 3600), make_limit("in_flight", 10))
    for _ in range(100):
        exact, ahead = both.admit(plan, input_tokens=1, output_tokens=1)
        assert exact.refusal == ahead.refusal
        assert exact.refusal is None
        if len(both.running) == 10:
            exact, ahead = both.admit(plan, input_tokens=1, output_tokens=1)
            assert exact.refusal == ahead.refusal
            assert exact.refusal is not None
        if len(both.running) > 5:
            both.settle(0, 1, 1, 0)
