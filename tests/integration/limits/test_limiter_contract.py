"""What every limiter promises: one suite for the local one and the one in Redis."""

from __future__ import annotations

import pytest

from billing.budgets.spend_feed import SpendFeed, WindowSpend
from billing.budgets.window import window_at
from billing.usage.event import RequestStatus, TokenUsage
from gateway.dataplane.estimate import Guess
from gateway.dataplane.limits.types import LimitPlan, Standing
from gateway.dataplane.reservation import Reservation, make_reservation
from gateway.errors import RateLimitedError
from tests.factories.limits import (
    JOURNAL,
    SECOND,
    START_US,
    UNIT,
    guess_of,
    make_budget,
    make_limit,
    make_plan,
    snapshot_of,
)
from tests.fixtures.limiters import LimiterRig

DAY = window_at("daily", "UTC", START_US)


async def reserve(rig: LimiterRig, plan: LimitPlan, guess: Guess) -> Reservation:
    """Return what was admitted, perhaps less than was guessed; raises what the client is told."""
    reservation = make_reservation(rig.limiter, plan, guess, None, "req_r", rig.clock(), False)
    waiting = reservation.ask()
    while waiting is not None:
        waiting = reservation.hear(await waiting)
    return reservation


def feed_of(version: int, amount: str, *, covered: tuple[int, int] = (0, 0)) -> SpendFeed:
    spent = {"bud_1": WindowSpend(DAY.start_us, amount)}
    return SpendFeed(version=version, positions={JOURNAL: covered}, spent=spent)


async def test_a_refused_claim_consumes_nothing(rig: LimiterRig) -> None:
    requests = make_limit("requests", 5)
    tight = make_limit("total_tokens", 30, scope="project")
    budget = make_budget("1")
    plan = make_plan(requests, tight, budget)
    await rig.take(plan, input_tokens=10, output_tokens=20, hold_nano=UNIT // 2)
    for _ in range(20):
        refusal = (await rig.ask(plan, hold_nano=UNIT // 4)).refusal
        assert refusal is not None
        assert refusal.limit == tight
    outcome = await rig.ask(make_plan(requests, budget), hold_nano=UNIT // 2)
    assert outcome.refusal is None
    assert outcome.requests is not None
    assert outcome.requests.remaining == 3


@pytest.mark.parametrize("metric", ["requests", "input_tokens", "output_tokens", "total_tokens"])
async def test_the_retry_is_true_to_the_millisecond(rig: LimiterRig, metric: str) -> None:
    plan = make_plan(make_limit(metric, 7, 60))
    counts = {"input_tokens": 3, "output_tokens": 2}
    while (outcome := await rig.ask(plan, **counts)).refusal is None:
        pass
    wait_ms = outcome.refusal.retry_after_ms
    assert wait_ms is not None
    rig.advance((wait_ms - 1) / 1000)
    assert (await rig.ask(plan, **counts)).refusal is not None
    rig.advance(0.001)
    assert (await rig.ask(plan, **counts)).refusal is None


async def test_the_longest_wait_is_told(rig: LimiterRig) -> None:
    short, long = make_limit("requests", 1, 1, name="short"), make_limit("requests", 1, 3600)
    plan = make_plan(short, long)
    await rig.take(plan)
    refusal = (await rig.ask(plan)).refusal
    assert refusal is not None
    assert refusal.limit == long
    assert refusal.retry_after_ms == 3_600_000
    never = make_limit("requests", 0, name="never")
    refusal = (await rig.ask(make_plan(short, never, long))).refusal
    assert refusal is not None
    assert (refusal.limit, refusal.retry_after_ms) == (never, None)


async def test_no_burst_at_a_minute(rig: LimiterRig) -> None:
    """Case 37: ten at 11:59:59.990, ten at 12:00:00.010; a jump of a day; a step back."""
    plan = make_plan(make_limit("requests", 10, 60))
    minute = -(-START_US // (60 * SECOND)) * 60 * SECOND
    rig.clock.at_us = minute - 10_000
    outcomes = [await rig.ask(plan) for _ in range(10)]
    rig.clock.at_us = minute + 10_000
    outcomes += [await rig.ask(plan) for _ in range(10)]
    assert sum(outcome.refusal is None for outcome in outcomes) == 10
    rig.advance(86_400)
    outcomes = [await rig.ask(plan) for _ in range(15)]
    assert sum(outcome.refusal is None for outcome in outcomes) == 10
    rig.clock.advance(-5)
    refusal = (await rig.ask(plan)).refusal
    assert refusal is not None  # not reset
    assert refusal.retry_after_ms is not None
    assert refusal.retry_after_ms <= 6_000
    rig.advance(6)
    assert (await rig.ask(plan)).refusal is None  # nor extended


async def test_larger_than_the_limit_never_fits(rig: LimiterRig) -> None:
    plan = make_plan(make_limit("total_tokens", 100))
    refusal = (await rig.ask(plan, input_tokens=101, output_tokens=0)).refusal
    assert refusal is not None
    assert (refusal.retry_after_ms, refusal.requested, refusal.remaining) == (None, 101, 100)


@pytest.mark.parametrize(
    "metric", ["requests", "input_tokens", "output_tokens", "total_tokens", "in_flight"]
)
async def test_a_limit_of_0_lets_nothing_through(rig: LimiterRig, metric: str) -> None:
    """Case 47."""
    refusal = (
        await rig.ask(make_plan(make_limit(metric, 0)), input_tokens=0, output_tokens=0)
    ).refusal
    assert refusal is not None
    assert refusal.retry_after_ms is None


async def test_settlement_puts_real_counts_in_place(rig: LimiterRig) -> None:
    """Case 36: thirty streams that reserved 8000 and used 50 each leave the rest to others."""
    plan = make_plan(make_limit("total_tokens", 100_000))
    for _ in range(30):
        claim = await rig.take(plan, input_tokens=10, output_tokens=8000)
        rig.settle(claim, output_tokens=40)
    outcome = await rig.ask(plan, input_tokens=0, output_tokens=0)
    assert outcome.tokens is not None
    assert outcome.tokens.remaining == 100_000 - 30 * 50


async def test_more_than_was_reserved_counts_too(rig: LimiterRig) -> None:
    plan = make_plan(make_limit("output_tokens", 100))
    claim = await rig.take(plan, output_tokens=10)
    assert await rig.top_up(claim, 60, 0) is None
    rig.settle(claim, output_tokens=150)
    outcome = await rig.ask(plan, output_tokens=1)
    assert outcome.refusal is not None
    assert outcome.tokens is not None
    assert outcome.tokens.remaining == 0
    rig.advance(31)  # 51 of 100 a minute
    assert (await rig.ask(plan, output_tokens=1)).refusal is None


async def test_a_place_in_flight_is_kept_until_settlement(rig: LimiterRig) -> None:
    """Case 33: no way out of a request keeps the place; the count is never below 0."""
    plan = make_plan(make_limit("in_flight", 1))
    claim = await rig.take(plan)
    refusal = (await rig.ask(plan)).refusal
    assert refusal is not None
    assert refusal.retry_after_ms is not None
    assert 1_000 <= refusal.retry_after_ms <= 30_000
    rig.advance(300)
    assert (await rig.ask(plan)).refusal is not None
    for _ in range(3):
        rig.settle(claim)
    await rig.take(plan)
    assert (await rig.ask(plan)).refusal is not None


async def test_a_changed_amount_keeps_what_was_used(rig: LimiterRig) -> None:
    limit = make_limit("requests", 10, 3600)
    rig.use_snapshot(snapshot_of([limit]))
    for _ in range(10):
        await rig.take(make_plan(limit))
    raised = make_limit("requests", 12, 3600)
    rig.use_snapshot(snapshot_of([raised], 2))
    outcomes = [await rig.ask(make_plan(raised)) for _ in range(4)]
    assert [outcome.refusal is None for outcome in outcomes] == [True, True, False, False]
    rig.use_snapshot(snapshot_of([make_limit("requests", 2, 3600)], 3))
    refusal = (
        await rig.ask(make_plan(raised))
    ).refusal  # the newest amount holds for old plans too
    assert refusal is not None
    assert refusal.limit == make_limit("requests", 2, 3600)


async def test_a_hard_budget_holds_at_once(rig: LimiterRig) -> None:
    plan = make_plan(make_budget("1"))
    claim = await rig.take(plan, hold_nano=6 * UNIT // 10)
    refusal = (await rig.ask(plan, hold_nano=5 * UNIT // 10)).refusal
    assert refusal is not None
    assert refusal.budget == make_budget("1")
    assert (refusal.remaining, refusal.requested) == (4 * UNIT // 10, 5 * UNIT // 10)
    assert refusal.resets_at_us == DAY.end_us
    rig.settle(claim, charge_nano=UNIT // 10)
    await rig.take(plan, hold_nano=9 * UNIT // 10)
    assert (await rig.ask(plan, hold_nano=0)).refusal is not None  # all of it is held
    assert (await rig.ask(plan, hold_nano=2 * UNIT)).refusal.retry_after_ms is None  # type: ignore[union-attr]


async def test_what_is_only_held_comes_back(rig: LimiterRig) -> None:
    plan = make_plan(make_budget("1"))
    rig.use_feed(feed_of(1, "0.3"))
    for seconds in [4] * 60:
        brief = await rig.take(plan, hold_nano=1)
        rig.advance(seconds)
        rig.settle(brief)
    claim = await rig.take(plan, hold_nano=UNIT // 2)
    refusal = (await rig.ask(plan, hold_nano=UNIT // 2)).refusal
    assert refusal is not None
    assert (refusal.is_held, refusal.held, refusal.remaining) == (True, UNIT // 2, UNIT // 5)
    assert refusal.retry_after_ms == pytest.approx(4000, abs=10)  # what such requests take
    refusal = (await rig.ask(plan, hold_nano=8 * UNIT // 10)).refusal  # above all that is not spent
    assert refusal is not None
    assert (refusal.is_held, refusal.held) == (False, UNIT // 2)
    assert DAY.end_us is not None
    assert refusal.retry_after_ms == (DAY.end_us - rig.clock()) // 1000
    rig.settle(claim, charge_nano=UNIT // 5)
    await rig.take(plan, hold_nano=UNIT // 2)
    assert rig.clock() < DAY.end_us - 2 * SECOND
    rig.clock.at_us = DAY.end_us - 2 * SECOND  # the window's end comes before that of the Hold
    refusal = (await rig.ask(plan, hold_nano=UNIT // 2)).refusal
    assert refusal is not None
    assert refusal.retry_after_ms == 2000


async def test_what_was_charged_does_not_come_back(rig: LimiterRig) -> None:
    plan = make_plan(make_budget("1", "lifetime"))
    rig.settle(await rig.take(plan, hold_nano=UNIT // 10), charge_nano=UNIT // 2)
    claim = await rig.take(plan, hold_nano=UNIT // 4)
    refusal = (await rig.ask(plan, hold_nano=3 * UNIT // 5)).refusal
    assert refusal is not None
    assert (refusal.is_held, refusal.held, refusal.retry_after_ms) == (False, UNIT // 4, None)
    refusal = (await rig.ask(plan, hold_nano=UNIT // 2)).refusal
    assert refusal is not None
    assert (refusal.is_held, refusal.retry_after_ms) == (True, 1000)
    rig.settle(claim)


@pytest.mark.parametrize("amount", [10_500, 6_010])
async def test_a_guess_above_a_limit_waits_for_all_of_it(rig: LimiterRig, amount: int) -> None:
    plan = make_plan(make_limit("total_tokens", amount, 60))
    small = await rig.take(plan, input_tokens=amount // 2, output_tokens=0)
    large = guess_of(12_021, 256)
    with pytest.raises(RateLimitedError) as refused:
        await reserve(rig, plan, large)
    if amount < 12_021 / 2:
        assert refused.value.code == "request_over_rate_limit"
        return
    wait_seconds = refused.value.retry_after_seconds
    assert wait_seconds == pytest.approx(30, abs=0.01)
    rig.settle(small)
    rig.advance(wait_seconds)
    reservation = await reserve(rig, plan, large)
    assert (reservation.input_tokens, reservation.output_tokens) == (amount - 1, 1)
    reservation.settle(RequestStatus.COMPLETED, TokenUsage(10_000, None, 200), (0, 9))
    assert rig.limiter.peek(plan).tokens == Standing(amount, amount - 10_200, 58_286)


@pytest.mark.parametrize("hold_nano", [0, 1])
@pytest.mark.parametrize("amount", ["0", "0.0"])
async def test_a_budget_of_0_blocks_everything(
    rig: LimiterRig, amount: str, hold_nano: int
) -> None:
    """Case 47."""
    refusal = (await rig.ask(make_plan(make_budget(amount)), hold_nano=hold_nano)).refusal
    assert refusal is not None
    assert refusal.retry_after_ms is None


async def test_no_budget_is_no_limit(rig: LimiterRig) -> None:
    """Case 47."""
    assert (await rig.ask(make_plan(), hold_nano=10**18)).refusal is None


async def test_a_soft_budget_warns(rig: LimiterRig) -> None:
    budget = make_budget("1", is_hard=False)
    plan = make_plan(budget)
    assert (await rig.ask(plan, hold_nano=2 * UNIT)).warnings == ()
    outcome = await rig.ask(plan, hold_nano=UNIT)
    assert outcome.refusal is None
    assert outcome.warnings == (budget,)


async def test_a_charge_counts_until_the_ledger_has_it(rig: LimiterRig) -> None:
    plan = make_plan(make_budget("1"))
    first = rig.settle(await rig.take(plan, hold_nano=UNIT // 2), charge_nano=UNIT // 2)
    rig.advance(0.2)  # charges of one tenth of a second are covered together
    rig.settle(await rig.take(plan, hold_nano=UNIT // 2), charge_nano=UNIT // 4)
    rig.use_feed(feed_of(2, "0.5", covered=first))
    refusal = (await rig.ask(plan, hold_nano=UNIT // 2)).refusal
    assert refusal is not None
    assert refusal.remaining == UNIT // 4
    rig.use_feed(feed_of(1, "0"))  # an older one changes nothing
    assert (await rig.ask(plan, hold_nano=UNIT // 2)).refusal is not None
    await rig.take(plan, hold_nano=UNIT // 4)


async def test_a_feed_of_the_day_before_frees_nothing_of_today(rig: LimiterRig) -> None:
    """A worker whose clock is ahead: the ledger has its charges, and does not say so before midnight."""
    plan = make_plan(make_budget("1"))
    assert DAY.end_us is not None
    rig.clock.at_us = DAY.end_us
    point = rig.settle(await rig.take(plan, hold_nano=UNIT), charge_nano=UNIT)
    for version in (1, 2):
        rig.use_feed(feed_of(version, "0.5", covered=point))
        assert (await rig.ask(plan, hold_nano=1)).refusal is not None
    spent = {"bud_1": WindowSpend(DAY.end_us, "0.4")}  # a correction among it
    rig.use_feed(SpendFeed(version=3, positions={JOURNAL: point}, spent=spent))
    await rig.take(plan, hold_nano=6 * UNIT // 10)
    assert (await rig.ask(plan, hold_nano=1)).refusal is not None


async def test_a_reset_or_a_raise_is_heard_at_once(rig: LimiterRig) -> None:
    """Case 46: refused retries keep nothing alive; the next feed or Snapshot opens the budget."""
    budget = make_budget("1")
    plan = make_plan(budget)
    rig.use_snapshot(snapshot_of([budget]))
    rig.use_feed(feed_of(1, "1"))
    for _ in range(50):
        assert (await rig.ask(plan, hold_nano=1)).refusal is not None
    rig.use_feed(SpendFeed(version=2))
    assert (await rig.ask(plan, hold_nano=1)).refusal is None
    rig.use_feed(feed_of(3, "1"))
    assert (await rig.ask(plan, hold_nano=1)).refusal is not None
    rig.use_snapshot(snapshot_of([make_budget("2")], 2))
    assert (await rig.ask(plan, hold_nano=1)).refusal is None


async def test_a_new_window_starts_at_zero_without_a_feed(rig: LimiterRig) -> None:
    plan = make_plan(make_budget("1"))
    rig.use_feed(feed_of(1, "0.6"))
    late = await rig.take(plan, hold_nano=4 * UNIT // 10)
    assert (await rig.ask(plan, hold_nano=1)).refusal is not None
    assert DAY.end_us is not None
    rig.clock.at_us = DAY.end_us
    claim = await rig.take(plan, hold_nano=UNIT)
    rig.settle(late, charge_nano=4 * UNIT // 10)  # belongs to the day before
    rig.settle(claim, charge_nano=UNIT // 2)
    await rig.take(plan, hold_nano=UNIT // 2)
    assert (await rig.ask(plan, hold_nano=1)).refusal is not None


async def test_a_top_up_needs_money(rig: LimiterRig) -> None:
    plan = make_plan(make_budget("1"), make_limit("output_tokens", 100))
    claim = await rig.take(plan, output_tokens=10, hold_nano=UNIT // 2)
    assert await rig.top_up(claim, 10, UNIT // 2) is None
    assert (claim.output_tokens, claim.hold_nano) == (20, UNIT)
    assert await rig.top_up(claim, 10, 1) == make_budget("1")
    assert (claim.output_tokens, claim.hold_nano) == (20, UNIT)
    assert await rig.top_up(claim, 10, 0) is None  # no money asked for
    rig.settle(claim, output_tokens=30, charge_nano=UNIT // 4)
    await rig.take(plan, output_tokens=10, hold_nano=3 * UNIT // 4)


async def test_a_look_consumes_nothing(rig: LimiterRig) -> None:
    soft = make_budget("1", is_hard=False)
    plan = make_plan(make_limit("requests", 5), make_limit("total_tokens", 90), soft)
    assert rig.limiter.peek(plan).requests == Standing(5, 5, 0)
    outcome = await rig.ask(plan, input_tokens=20, output_tokens=10, hold_nano=UNIT)
    for _ in range(9):
        seen = rig.limiter.peek(plan)
        assert (seen.refusal, seen.requests, seen.tokens) == (
            *(None, outcome.requests, outcome.tokens),
        )
        assert seen.warnings == (soft,)
    rig.advance(60)
    assert rig.limiter.peek(plan).tokens == Standing(90, 90, 0)
    assert (await rig.ask(plan, input_tokens=90, output_tokens=0)).refusal is None
