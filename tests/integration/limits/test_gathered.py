"""Under load claims are asked for together and settlements told as sums: nothing else comes of it."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator

import pytest
import redis

from billing.budgets.spend_feed import SpendFeed, WindowSpend
from billing.budgets.window import window_at
from gateway.dataplane.limits.clocks import wall_us
from gateway.dataplane.limits.redis_limiter import RedisLimiter
from gateway.dataplane.limits.types import Claim, Outcome
from gateway.snapshot.model import Budget, RateLimit
from tests.factories.limits import (
    JOURNAL,
    UNIT,
    SetClock,
    make_budget,
    make_limit,
    make_plan,
)
from tests.fixtures.limiters import LimiterRig, MortalValkey, until, until_alone, until_ready

BUSY = 12  # claims that run, so that others are gathered


class Rig(LimiterRig):
    """A busy limiter under a clock that stands still, and a look into its Redis."""

    def __init__(self, limiter: RedisLimiter, url: str, clock: SetClock) -> None:
        super().__init__(limiter, clock)
        self.store = redis.Redis.from_url(url, decode_responses=False)
        self._running: list[Claim] = []

    async def be_busy(self) -> None:
        plan = make_plan(make_limit("requests", 10**6, name="lim_busy"))
        self._running += [await self.take(plan) for _ in range(BUSY)]

    async def ask_all(self, claims: list[Claim]) -> list[Outcome]:
        return await asyncio.gather(*(self.admit(claim) for claim in claims))

    def level(self, limit_id: str) -> float:
        raw = self.store.get(f"{{forebay}}:b:{limit_id}")
        return 0.0 if raw is None else float(struct.unpack("<ddd", raw)[0])  # type: ignore[arg-type]

    def money(self) -> dict[str, int]:
        """Return what is held, unposted and spent of the only budget."""
        (key,) = self.store.keys("{forebay}:m:*")  # type: ignore[misc]
        fields = self.store.hgetall(key)
        return {
            name: int(fields.get(f"{name}:{JOURNAL}".encode(), 0))  # type: ignore[union-attr]
            for name in ("held", "unposted")
        } | {"spent": int(float(fields.get(b"spent", 0)))}  # type: ignore[union-attr]


@pytest.fixture
async def rig(valkey_url: str) -> AsyncIterator[Rig]:
    clock = SetClock()
    limiter = RedisLimiter(
        *(valkey_url, JOURNAL),
        monotonic_us=clock,
        wall_us=clock,
        now_us=clock,
        decision_seconds=10,
    )
    await limiter.start()
    await until_ready(limiter)
    made = Rig(limiter, valkey_url, clock)
    await made.be_busy()
    yield made
    await limiter.close()
    made.store.close()


async def test_claims_are_asked_for_together(rig: Rig) -> None:
    before = int(rig.store.info("commandstats")["cmdstat_evalsha"]["calls"])  # type: ignore[index]
    plan = make_plan(make_limit("requests", 1000, 3600))
    outcomes = await rig.ask_all([rig.claim(plan) for _ in range(100)])
    assert all(outcome.refusal is None for outcome in outcomes)
    calls = int(rig.store.info("commandstats")["cmdstat_evalsha"]["calls"]) - before  # type: ignore[index]
    assert calls < 50
    assert rig.level(plan.limits[0].id) == 100


@pytest.mark.parametrize("kind", ["requests", "total_tokens", "budget"])
async def test_what_has_no_room_together_is_admitted_one_by_one(rig: Rig, kind: str) -> None:
    rule = {
        "requests": make_limit("requests", 37, 3600),
        "total_tokens": make_limit("total_tokens", 37 * 30, 3600),
        "budget": make_budget("37"),
    }[kind]
    plan = make_plan(rule)
    counts = {"input_tokens": 10, "output_tokens": 20, "hold_nano": UNIT}
    outcomes = await rig.ask_all([rig.claim(plan, **counts) for _ in range(100)])
    assert sum(outcome.refusal is None for outcome in outcomes) == 37
    refusals = [outcome.refusal for outcome in outcomes if outcome.refusal is not None]
    assert all((one.limit or one.budget) == rule for one in refusals)
    later = await rig.ask_all([rig.claim(plan, **counts) for _ in range(5)])
    assert all(outcome.refusal is not None for outcome in later)


async def test_a_small_claim_is_not_refused_for_a_large_one_beside_it(rig: Rig) -> None:
    plan = make_plan(make_limit("total_tokens", 1000, 3600))
    claims = [rig.claim(plan, input_tokens=size, output_tokens=0) for size in (10, 5000, 10, 10)]
    outcomes = await rig.ask_all(claims)
    assert [outcome.refusal is None for outcome in outcomes] == [True, False, True, True]


@pytest.mark.parametrize("seed", range(6))
async def test_sums_leave_what_each_settlement_would_have_left(rig: Rig, seed: int) -> None:
    rng = random.Random(seed)
    plan = make_plan(
        make_limit("requests", 10**6, 3600),
        make_limit("total_tokens", 10**9, 3600),
        make_limit("output_tokens", 10**9, 3600),
        make_budget("1000000"),
    )
    level = {"requests": 0, "total_tokens": 0, "output_tokens": 0}
    charged = 0

    async def request() -> None:
        nonlocal charged
        await asyncio.sleep(rng.random() / 50)
        claim = rig.claim(
            plan,
            input_tokens=rng.randrange(1, 100),
            output_tokens=rng.randrange(1, 100),
            hold_nano=rng.randrange(1, UNIT),
        )
        assert (await rig.limiter.admit(claim)).refusal is None
        level["requests"] += 1
        await asyncio.sleep(rng.random() / 50)
        if rng.random() < 0.1:  # never reached an engine
            rig.limiter.undo(claim)
            level["requests"] -= 1
            return
        tokens, output, charge = rng.randrange(100), rng.randrange(300), rng.randrange(UNIT)
        level["total_tokens"] += tokens + output
        level["output_tokens"] += output
        charged += charge
        rig.settle(claim, input_tokens=tokens, output_tokens=output, charge_nano=charge)

    await asyncio.gather(*(request() for _ in range(300)))
    await until(lambda: rig.money() == {"held": 0, "unposted": charged, "spent": 0})
    for limit in plan.limits:
        assert rig.level(limit.id) == level[limit.metric]
    outcome = await rig.limiter.admit(rig.claim(plan, hold_nano=1))
    assert outcome.requests is not None
    assert outcome.requests.remaining == 10**6 - level["requests"] - 1


async def test_a_feed_finds_what_was_added_up(rig: Rig) -> None:
    """Nobody sees too little: the ledger's sum is there before what it covers is no longer unposted."""
    budget = make_budget("1000")
    plan = make_plan(budget)
    claims = [rig.claim(plan, hold_nano=UNIT) for _ in range(40)]
    assert all(outcome.refusal is None for outcome in await rig.ask_all(claims))
    points = [rig.settle(claim, charge_nano=UNIT) for claim in claims[:20]]
    await until(lambda: rig.money()["unposted"] == 20 * UNIT)
    rig.clock.advance(1)
    for claim in claims[20:30]:
        rig.settle(claim, charge_nano=UNIT)
    start_us = window_at(budget.window, budget.time_zone, rig.clock()).start_us
    spent = {budget.id: WindowSpend(start_us, "20")}
    rig.limiter.use_feed(SpendFeed(version=7, positions={JOURNAL: points[-1]}, spent=spent))
    await until(
        lambda: rig.money() == {"held": 10 * UNIT, "unposted": 10 * UNIT, "spent": 20 * UNIT}
    )
    for claim in claims[30:]:
        rig.settle(claim, charge_nano=UNIT)
    await until(lambda: rig.money() == {"held": 0, "unposted": 20 * UNIT, "spent": 20 * UNIT})


async def test_a_feed_covers_nothing_that_lies_behind_it(rig: Rig) -> None:
    """Sums of two plans are told one after the other, whatever the order of their close records."""
    budget = make_budget("1000")
    one, other = make_plan(budget, make_limit("requests", 1000)), make_plan(budget)
    claims = [rig.claim(plan, hold_nano=UNIT) for plan in (one, other, one)]
    assert all(outcome.refusal is None for outcome in await rig.ask_all(claims))
    rig.settle(claims[0], charge_nano=UNIT)
    point = rig.settle(claims[1], charge_nano=UNIT)
    rig.settle(claims[2], charge_nano=9 * UNIT)
    start_us = window_at(budget.window, budget.time_zone, rig.clock()).start_us
    spent = {budget.id: WindowSpend(start_us, "2")}
    rig.limiter.use_feed(SpendFeed(version=7, positions={JOURNAL: point}, spent=spent))
    await until(lambda: rig.money()["spent"] == 2 * UNIT)
    assert rig.money()["unposted"] >= 9 * UNIT


@pytest.mark.parametrize("kind", ["budget", "total_tokens", "in_flight"])
async def test_what_has_ended_refuses_nobody_who_asks_next(rig: Rig, kind: str) -> None:
    """One client, one request after the other, each estimated at more than half of what it may."""
    rule = {
        "budget": make_budget("100"),
        "total_tokens": make_limit("total_tokens", 100, 3600),
        "in_flight": make_limit("in_flight", 1),
    }[kind]
    plan = make_plan(rule)
    for _ in range(20):
        claim = rig.claim(plan, input_tokens=10, output_tokens=50, hold_nano=60 * UNIT)
        assert (await rig.limiter.admit(claim)).refusal is None
        rig.settle(claim, input_tokens=1, output_tokens=0, charge_nano=UNIT)


@pytest.mark.parametrize("rule", [make_budget("100"), make_limit("total_tokens", 6_000, 3600)])
async def test_what_others_have_ended_refuses_no_larger_claim(
    rig: Rig, rule: Budget | RateLimit
) -> None:
    """There is much room for each of the small ones, so their settlements are added up."""
    small, large = make_plan(rule, make_limit("requests", 1000)), make_plan(rule)
    counts = {"input_tokens": 5, "output_tokens": 5, "hold_nano": UNIT // 6}
    claims = [rig.claim(small, **counts) for _ in range(20)]
    assert all(outcome.refusal is None for outcome in await rig.ask_all(claims))
    for claim in claims:
        rig.settle(claim, input_tokens=0, output_tokens=0)
    claim = rig.claim(large, input_tokens=3_000, output_tokens=2_900, hold_nano=99 * UNIT)
    assert (await rig.limiter.admit(claim)).refusal is None


async def test_waits_that_are_cancelled_while_gathered_leave_nothing(rig: Rig) -> None:
    plan = make_plan(make_limit("requests", 1000, 3600), make_budget("1000"))
    tasks = [
        asyncio.ensure_future(rig.limiter.admit(rig.claim(plan, hold_nano=UNIT))) for _ in range(60)
    ]
    for number, task in enumerate(tasks):
        await asyncio.sleep(0.0003 if number % 7 == 0 else 0)
        if number % 3 == 0:
            tasks[number // 2].cancel()
        if number % 5 == 0:
            task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    kept = [outcome for outcome in outcomes if isinstance(outcome, Outcome)]
    assert 0 < len(kept) < 60
    await until(lambda: rig.money()["held"] == len(kept) * UNIT)
    await until(lambda: rig.level(plan.limits[0].id) == len(kept))


async def test_sums_survive_a_redis_that_goes_away_before_it_hears_them(
    mortal_valkey: MortalValkey,
) -> None:
    limiter = RedisLimiter(mortal_valkey.url, JOURNAL)
    await limiter.start()
    await until_ready(limiter)
    rig = Rig(limiter, mortal_valkey.url, SetClock(wall_us()))
    budget = make_budget("30")
    plan = make_plan(budget)
    claims = [rig.claim(plan, hold_nano=UNIT) for _ in range(25)]
    await rig.be_busy()
    assert all(outcome.refusal is None for outcome in await rig.ask_all(claims))
    mortal_valkey.kill()
    for claim in claims:
        rig.settle(claim, charge_nano=UNIT)  # added up, or told to the book at once
    await until_alone(limiter)
    outcomes = await rig.ask_all([rig.claim(plan, hold_nano=UNIT) for _ in range(20)])
    assert sum(outcome.refusal is None for outcome in outcomes) == 5
    mortal_valkey.start()
    await until_ready(limiter)
    await until(lambda: rig.money()["unposted"] == 25 * UNIT)
    await limiter.close()
    rig.store.close()
