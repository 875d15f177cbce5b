"""Both limiters under one clock: they agree step by step, keep the limits and leak nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from fractions import Fraction
from typing import Any, TypeVar

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from billing.budgets.spend_feed import SpendFeed, WindowSpend
from billing.budgets.window import window_at
from gateway.dataplane.limits import unposted
from gateway.dataplane.limits.local_limiter import LocalLimiter
from gateway.dataplane.limits.redis_limiter import RedisLimiter
from gateway.dataplane.limits.types import Claim, Outcome
from gateway.snapshot.model import Budget, RateLimit
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
from tests.fixtures.limiters import until_ready

Answer = TypeVar("Answer")
LIMITS = (
    make_limit("requests", 3, 1, name="lim_second"),
    make_limit("requests", 7, 60, name="lim_minute"),
    make_limit("total_tokens", 90, 60, name="lim_total", scope="project"),
    make_limit("output_tokens", 1000, 3600, name="lim_output", scope="organization"),
    make_limit("input_tokens", 60, 1, name="lim_input", scope="route"),
    make_limit("in_flight", 3, name="lim_flight"),
)
BUDGETS = (
    make_budget("0.000000050", "daily", name="bud_hard"),
    make_budget("0.000000100", "lifetime", name="bud_life"),
    make_budget("0.000000020", "weekly", name="bud_soft", is_hard=False),
)
COSTS = {
    "requests": lambda claim: 1,
    "input_tokens": lambda claim: claim.input_tokens,
    "output_tokens": lambda claim: claim.output_tokens,
    "total_tokens": lambda claim: claim.input_tokens + claim.output_tokens,
}


class Reference:
    """One rate limit in exact fractions, written down apart from the product's arithmetic."""

    def __init__(self, limit: RateLimit, at_us: int) -> None:
        self.limit, self.at_us = limit, at_us
        self.level = Fraction(0)

    def level_at(self, now_us: int) -> Fraction:
        """Return the level; the present amount counts from the last time that it was raised on."""
        if now_us <= self.at_us:
            return self.level
        rate = Fraction(self.limit.amount, self.limit.per_seconds * 1_000_000)
        return max(Fraction(0), self.level - rate * (now_us - self.at_us))

    def refuse(self, now_us: int) -> None:
        """Nothing changes, but that a clock that stepped back counts from now on."""
        self.at_us = min(self.at_us, now_us)

    def add(self, cost: int, now_us: int) -> None:
        self.level = max(Fraction(0), self.level_at(now_us) + cost)
        self.at_us = now_us

    def is_within(self) -> bool:
        return self.level <= self.limit.amount * (1 + Fraction(1, 10**8))


class Pair:
    """One claim, at both limiters."""

    def __init__(self, local: Claim, shared: Claim) -> None:
        self.local, self.shared = local, shared


class LimitersAgree(RuleBasedStateMachine):
    url = ""

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.running: list[Pair] = []
        self.clock = SetClock()
        self.loop = asyncio.new_event_loop()
        self.store = redis.Redis.from_url(self.url)
        self.store.flushall()
        clock = self.clock
        self.local = LocalLimiter(JOURNAL, monotonic_us=clock, wall_us=clock)
        self.shared = RedisLimiter(
            self.url, JOURNAL, monotonic_us=clock, wall_us=clock, now_us=clock, decision_seconds=20
        )
        self.run(self.shared.start())
        self.run(until_ready(self.shared))
        self.parts: dict[str, RateLimit | Budget] = {
            part.id: part for part in (*LIMITS, *BUDGETS) if data.draw(st.booleans(), part.id)
        }
        self.references = {
            part.id: Reference(part, clock())
            for part in self.parts.values()
            if isinstance(part, RateLimit) and part.metric != "in_flight"
        }
        self.version = 0
        self.publish()
        self.admitted_at: list[int] = []
        self.has_stepped = False
        self.charges: list[tuple[int, int, tuple[int, int]]] = []  # start, nano, point
        self.covered = (0, 0)

    def run(self, awaitable: Awaitable[Answer]) -> Answer:
        return self.loop.run_until_complete(_await(awaitable))

    def publish(self) -> None:
        self.version += 1
        self.plan = make_plan(*self.parts.values())
        snapshot = snapshot_of(self.parts.values(), self.version)
        self.local.use_snapshot(snapshot)
        self.run(_call(self.shared.use_snapshot, snapshot))

    @rule(seconds=st.sampled_from([0.001, 0.01, 0.3, 1.0, 7.0, 60.0, 3600.0, 86400.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.run(_call(self.shared.renew_leases))

    @rule(seconds=st.sampled_from([0.5, 5.0, 100.0]))
    def clock_steps_back(self, seconds: float) -> None:
        self.has_stepped = True
        self.clock.advance(-seconds)

    @rule(
        input_tokens=st.integers(0, 70),
        output_tokens=st.integers(0, 40),
        hold_nano=st.sampled_from([0, 0, 10, 25]),
    )
    def somebody_asks(self, input_tokens: int, output_tokens: int, hold_nano: int) -> None:
        pair = Pair(*(self.claim(input_tokens, output_tokens, hold_nano) for _ in range(2)))
        outcome = self.local.admit(pair.local)
        assert self.run(self.shared.admit(pair.shared)) == outcome
        self.check(pair.local, outcome)
        if outcome.refusal is None:
            self.running.append(pair)
            self.admitted_at.append(self.clock())

    def claim(self, input_tokens: int, output_tokens: int, hold_nano: int) -> Claim:
        return make_claim(
            self.plan,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            hold_nano=hold_nano,
            started_at_us=self.clock(),
        )

    def check(self, claim: Claim, outcome: Outcome) -> None:
        """Compare a decision with the reference; what is refused must have a reason there."""
        fits = True
        for reference in self.references.values():
            cost = COSTS[reference.limit.metric](claim)
            room = reference.limit.amount * (1 + Fraction(1, 10**8))
            fits &= reference.limit.amount > 0
            fits &= reference.level_at(self.clock()) + cost <= room
        struck = outcome.refusal.limit if outcome.refusal else None
        if outcome.refusal is None:
            assert fits
            for reference in self.references.values():
                reference.add(COSTS[reference.limit.metric](claim), self.clock())
                assert reference.is_within()
        else:
            assert struck is None or struck.metric == "in_flight" or not fits
            for reference in self.references.values():
                reference.refuse(self.clock())
        standings = [outcome.requests, outcome.tokens]
        assert all(one is None or (one.remaining >= 0 and one.reset_ms >= 0) for one in standings)

    @precondition(lambda self: self.running)
    @rule(
        data=st.data(),
        input_tokens=st.integers(0, 80),
        output_tokens=st.integers(0, 60),
        charge_nano=st.sampled_from([0, 5, 10, 25, 40]),
    )
    def a_request_ends(
        self, data: st.DataObject, input_tokens: int, output_tokens: int, charge_nano: int
    ) -> None:
        pair = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        point = (0, len(self.charges) + 1)
        self.charges.append((pair.local.started_at_us, charge_nano, point))
        self.correct(pair.local, input_tokens, output_tokens)
        counts: dict[str, Any] = {
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "charge_nano": charge_nano,
            "journal_point": point,
        }
        for _ in range(2):  # the second does nothing
            self.local.settle(pair.local, **counts)
            self.run(_call(self.shared.settle, pair.shared, **counts))

    def correct(self, claim: Claim, input_tokens: int, output_tokens: int) -> None:
        actual = Claim("", self.plan, input_tokens=input_tokens, output_tokens=output_tokens,
                       hold_nano=0, started_at_us=0)  # fmt: skip
        for reference in self.references.values():
            cost = COSTS[reference.limit.metric]
            if cost(actual) != cost(claim):
                reference.add(cost(actual) - cost(claim), self.clock())

    @precondition(lambda self: self.running)
    @rule(data=st.data(), output_tokens=st.integers(0, 30), hold_nano=st.sampled_from([0, 5, 15]))
    def a_stream_goes_on(self, data: st.DataObject, output_tokens: int, hold_nano: int) -> None:
        pair = data.draw(st.sampled_from(self.running))
        more: dict[str, Any] = {"output_tokens": output_tokens, "hold_nano": hold_nano}
        struck = self.local.top_up(pair.local, **more)
        assert self.run(self.shared.top_up(pair.shared, **more)) == struck
        assert pair.local.hold_nano == pair.shared.hold_nano
        assert pair.local.output_tokens == pair.shared.output_tokens
        if struck is None and output_tokens:
            for reference in self.references.values():
                if reference.limit.metric in ("output_tokens", "total_tokens"):
                    reference.add(output_tokens, self.clock())

    @rule(back=st.integers(0, 3))
    def the_ledger_is_heard(self, back: int) -> None:
        """A feed of some moment: the latest, or one that lags by some settlements."""
        self.covered = max(self.covered, (0, max(0, len(self.charges) - back)))
        spent = {}
        for budget in self.parts.values():
            if isinstance(budget, Budget):
                sums: dict[int, int] = {}
                for started_at_us, nano, point in self.charges:
                    if nano and point <= self.covered:
                        start = window_at(budget.window, budget.time_zone, started_at_us).start_us
                        sums[start] = sums.get(start, 0) + nano
                if sums:
                    amount = Fraction(sums[max(sums)], UNIT)
                    spent[budget.id] = WindowSpend(max(sums), f"{float(amount):.9f}")
        self.version += 1
        feed = SpendFeed(version=self.version, positions={JOURNAL: self.covered}, spent=spent)
        self.local.use_feed(feed)
        self.run(_call(self.shared.use_feed, feed))

    @precondition(lambda self: self.references)
    @rule(data=st.data(), amount=st.sampled_from([0, 1, 5, 50, 500]))
    def a_limit_changes(self, data: st.DataObject, amount: int) -> None:
        limit_id = data.draw(st.sampled_from(sorted(self.references)))
        part = self.parts[limit_id]
        assert isinstance(part, RateLimit)
        changed = RateLimit(
            part.id, part.scope, part.scope_id, part.metric, amount, part.per_seconds
        )
        self.parts[limit_id] = changed
        self.references[limit_id].limit = changed
        self.has_stepped = True  # the plain bounds below are of one amount
        self.publish()

    @invariant()
    def no_period_holds_too_much(self) -> None:
        if not hasattr(self, "parts") or self.has_stepped:
            return
        for part in self.parts.values():
            if isinstance(part, RateLimit) and part.metric == "requests":
                period_us = part.per_seconds * 1_000_000
                for i, first in enumerate(self.admitted_at):
                    for count, last in enumerate(self.admitted_at[i:], 1):
                        elapsed = Fraction(last - first, period_us)
                        assert count <= part.amount + part.amount * elapsed + Fraction(1, 10**6)

    @invariant()
    def places_in_flight_are_kept(self) -> None:
        flight = getattr(self, "parts", {}).get("lim_flight")
        assert flight is None or len(self.running) <= flight.amount

    def teardown(self) -> None:
        if not hasattr(self, "shared"):
            return
        for pair in self.running:
            self.run(_call(self.shared.settle, pair.shared, input_tokens=0, output_tokens=0,
                           charge_nano=0, journal_point=(0, 10**6)))  # fmt: skip
        self.run(self.shared.close())
        self.run(asyncio.sleep(0))
        self.loop.close()
        for key in self.store.keys("{forebay}:m:*"):
            assert int(self.store.hget(key, f"held:{JOURNAL}") or 0) == 0
        for key in self.store.keys("{forebay}:f:*"):
            assert self.store.zcard(key) == 0
        self.store.close()


async def _await(awaitable: Awaitable[Answer]) -> Answer:
    return await awaitable


async def _call(method: Any, *arguments: Any, **named: Any) -> None:
    method(*arguments, **named)


@pytest.fixture
def machine(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> type[LimitersAgree]:
    monkeypatch.setattr(unposted, "SLOT_US", 0)  # every charge is covered by itself
    LimitersAgree.url = valkey_url
    return LimitersAgree


def test_limiters_agree(machine: type[LimitersAgree]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
