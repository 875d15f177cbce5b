"""Several workers on one Redis: limits and budgets hold for all of them together."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest
import redis

from billing.budgets.spend_feed import SpendFeed, WindowSpend
from billing.budgets.window import window_at
from gateway.dataplane.limits import membership, redis_settle, resp_connection
from gateway.dataplane.limits.left_charges import LeftCharge, LeftJournal
from gateway.dataplane.limits.membership import Places
from gateway.dataplane.limits.redis_limiter import RedisLimiter
from gateway.dataplane.limits.resp_connection import RespConnection
from gateway.dataplane.limits.types import Claim, LimitPlan
from tests.factories.limits import (
    UNIT,
    make_budget,
    make_claim,
    make_limit,
    make_plan,
    snapshot_of,
)
from tests.fixtures.limiters import WORKERS, until

CLAIMS = 200


def claim_on(plan: LimitPlan, hold_nano: int = 0) -> Claim:
    return make_claim(plan, hold_nano=hold_nano, started_at_us=time.time_ns() // 1000)


def settle(limiter: RedisLimiter, claim: Claim, charge_nano: int = 0) -> None:
    limiter.settle(
        claim,
        input_tokens=claim.input_tokens,
        output_tokens=claim.output_tokens,
        charge_nano=charge_nano,
        journal_point=(0, 1),
    )


@pytest.fixture
def waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for company, or for a heartbeat, waits longer than any test."""
    monkeypatch.setattr(membership, "BEAT_SECONDS", 1_000)
    monkeypatch.setattr(redis_settle, "PATIENT_SECONDS", 1_000)
    monkeypatch.setattr(resp_connection, "PATIENT_SECONDS", 1_000)


def connection_of(limiter: RedisLimiter) -> RespConnection:
    connection = limiter.find_connection()
    assert connection is not None
    return connection


async def test_exactly_twenty_a_minute(limiters: list[RedisLimiter]) -> None:
    """Case 41: 4 workers, 200 claims at once each, 20 requests a minute."""
    plan = make_plan(make_limit("requests", 20, 3600))
    outcomes = await asyncio.gather(
        *(limiter.admit(claim_on(plan)) for _ in range(CLAIMS) for limiter in limiters)
    )
    assert sum(outcome.refusal is None for outcome in outcomes) == 20


async def test_never_more_than_four_in_flight(limiters: list[RedisLimiter]) -> None:
    """Case 41, measured where the work is done."""
    plan = make_plan(make_limit("in_flight", 4))
    running = most = served = 0

    async def request(limiter: RedisLimiter) -> None:
        nonlocal running, most, served
        claim = claim_on(plan)

        async def is_admitted() -> bool:
            return (await limiter.admit(claim)).refusal is None

        await until(is_admitted)
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        served += 1
        settle(limiter, claim)

    await asyncio.gather(*(request(limiter) for _ in range(20) for limiter in limiters))
    assert served == 80
    assert most == 4


@pytest.mark.parametrize("claims", [8, 100])
async def test_a_budget_for_one_request_serves_one(
    limiters: list[RedisLimiter], claims: int
) -> None:
    """Case 42: all at once, two processes, a budget nobody has used before."""
    plan = make_plan(make_budget("1"))
    asked = [(claim_on(plan, UNIT), limiters[n % 2]) for n in range(claims)]
    outcomes = await asyncio.gather(*(limiter.admit(claim) for claim, limiter in asked))
    assert sum(outcome.refusal is None for outcome in outcomes) == 1


async def test_a_hard_budget_is_never_exceeded(limiters: list[RedisLimiter]) -> None:
    plan = make_plan(make_budget("1"), make_budget("1.5", "monthly", name="bud_2"))
    hold, charged, refused = UNIT // 50, 0, 0

    async def request(limiter: RedisLimiter, n: int) -> None:
        nonlocal charged, refused
        claim = claim_on(plan, hold)
        if (await limiter.admit(claim)).refusal is not None:
            refused += 1
            return
        await asyncio.sleep(0.001 * (n % 3))
        charged += hold - n % 7
        settle(limiter, claim, hold - n % 7)

    await asyncio.gather(*(request(limiter, n) for n in range(CLAIMS) for limiter in limiters))
    assert UNIT - hold < charged <= UNIT
    assert refused == WORKERS * CLAIMS - 50


async def test_what_others_hold_is_told_as_held(limiters: list[RedisLimiter]) -> None:
    """Whoever is asked: what all workers hold comes back, what they have charged does not."""
    plan = make_plan(make_budget("1", "lifetime"))
    claims = [claim_on(plan, UNIT // 5) for _ in limiters]
    for limiter, claim in zip(limiters, claims, strict=True):
        assert (await limiter.admit(claim)).refusal is None
    settle(limiters[0], claims[0], UNIT // 10)
    asked = claim_on(plan, 4 * UNIT // 10)
    held = [UNIT // 5 * running for running in (3, 2, 1)]
    for expected, limiter, claim in zip(held, limiters[1:], claims[1:], strict=True):

        async def is_told(expected: int = expected) -> bool:
            refusal = (await limiters[0].admit(asked)).refusal
            assert refusal is not None
            assert refusal.is_held == (refusal.held > 0)
            return refusal.held == expected

        await until(is_told)
        settle(limiter, claim, UNIT // 5)


async def test_a_limit_raised_while_a_claim_is_refused_admits_it(
    limiters: list[RedisLimiter],
) -> None:
    """What struck by the old amount strikes no more when its answer comes."""
    limit, budget = make_limit("requests", 1, 3600), make_budget("1", name="bud_raised")
    for old, new, first, second in (
        (limit, make_limit("requests", 5, 3600), 0, 0),
        (budget, make_budget("5", name="bud_raised"), UNIT, UNIT),
    ):
        plan = make_plan(old)
        limiters[0].use_snapshot(snapshot_of((old,)))
        assert (await limiters[0].admit(claim_on(plan, first))).refusal is None
        asked = asyncio.create_task(limiters[0].admit(claim_on(plan, second)))
        await asyncio.sleep(0)  # it is on its way
        limiters[0].use_snapshot(snapshot_of((new,)))
        assert (await asyncio.wait_for(asked, 5)).refusal is None
        assert limiters[0].is_shared


async def test_a_stream_does_not_end_while_others_write_back(
    limiters: list[RedisLimiter], valkey_url: str
) -> None:
    plan = make_plan(make_budget("1"))
    claim = claim_on(plan, UNIT // 100)
    assert (await limiters[0].admit(claim)).refusal is None
    with redis.Redis.from_url(valkey_url) as server:
        server.flushall()
    growing = asyncio.create_task(limiters[0].top_up(claim, output_tokens=1, hold_nano=UNIT // 100))
    await until(lambda: not limiters[0].is_ready)
    await asyncio.sleep(0.01)
    assert not growing.done()
    await asyncio.gather(*(each.admit(claim_on(plan)) for each in limiters[1:]))  # they notice
    assert await asyncio.wait_for(growing, 5) is None
    assert claim.hold_nano == UNIT // 50
    refused = await limiters[0].top_up(claim, output_tokens=1, hold_nano=UNIT)
    assert refused is not None  # of money there is as much as before


async def test_what_was_charged_before_a_budget_was_heard_of_counts_for_all(
    limiters: list[RedisLimiter],
) -> None:
    plan = make_plan(make_budget("1"))
    now_us = time.time_ns() // 1000
    charge = LeftCharge(plan, now_us, now_us, UNIT // 2, (1, 50))
    limiters[0].count_left(LeftJournal("jrn_0", (1, 99), False, (charge,), ()))
    await until(lambda: not connection_of(limiters[0])._waiting)
    refusal = (await limiters[1].admit(claim_on(plan, UNIT // 2 + 1))).refusal
    assert refusal is not None
    assert refusal.remaining == UNIT // 2
    spent = {"bud_1": WindowSpend(window_at("daily", "UTC", now_us).start_us, "0.5")}
    for limiter in limiters:
        limiter.use_feed(SpendFeed(version=1, positions={"jrn_0": (1, 50)}, spent=spent))
    await until(lambda: not connection_of(limiters[0])._waiting)
    assert (await limiters[1].admit(claim_on(plan, UNIT // 2))).refusal is None  # once, not twice


@pytest.mark.parametrize("kind", ["budget", "total_tokens", "in_flight"])
async def test_what_has_ended_is_free_for_other_workers_at_once(
    waits_for_nothing: None, limiters: list[RedisLimiter], kind: str
) -> None:
    """Near a limit a settlement waits neither for others nor for a heartbeat."""
    rule = {
        "budget": make_budget("100"),
        "total_tokens": make_limit("total_tokens", 100, 3600),
        "in_flight": make_limit("in_flight", 1),
    }[kind]
    plan = make_plan(rule)
    busy = make_plan(make_limit("requests", 10**6, name="lim_busy"))
    for limiter in limiters:  # as under load
        assert all([(await limiter.admit(claim_on(busy))).refusal is None for _ in range(12)])
    for turn in range(8):
        limiter = limiters[turn % WORKERS]
        claim = make_claim(
            plan,
            input_tokens=10,
            output_tokens=50,
            hold_nano=60 * UNIT,
            started_at_us=time.time_ns() // 1000,
        )

        async def is_admitted(limiter: RedisLimiter = limiter, claim: Claim = claim) -> bool:
            return (await limiter.admit(claim)).refusal is None

        await until(is_admitted)
        claim_tokens = {"input_tokens": 1, "output_tokens": 0}
        limiter.settle(claim, **claim_tokens, charge_nano=UNIT, journal_point=(0, turn))


async def test_a_dead_workers_holds_are_dropped_and_its_charges_kept(
    limiters: list[RedisLimiter], valkey_url: str
) -> None:
    """Case 33 (f): leases end by themselves; what was charged stays until the ledger has it."""
    plan = make_plan(make_budget("1"), make_limit("in_flight", 1))
    dying, living = limiters[0], limiters[1]
    charged = claim_on(plan, UNIT // 2)
    assert (await dying.admit(charged)).refusal is None
    settle(dying, charged, UNIT // 4)
    await dying.admit(claim_on(plan, UNIT // 2))
    task = dying._membership._task  # its end without a word: nothing is settled, nothing is left
    assert task is not None
    task.cancel()
    dying._membership.connection.close("killed")  # type: ignore[union-attr]
    with redis.Redis.from_url(valkey_url) as store:
        # Time passes for the dead alone: its heartbeat and its lease are over.
        store.zadd("{forebay}:workers", {"jrn_0": 1})
        store.zadd(
            "{forebay}:f:lim_in_flight", {store.zrange("{forebay}:f:lim_in_flight", 0, 0)[0]: 1}
        )

        async def has_room() -> bool:
            return (await living.admit(claim_on(plan, 3 * UNIT // 4))).refusal is None

        await until(has_room)
        window = store.keys("{forebay}:m:*")[0]
        assert store.hget(window, "unposted:jrn_0") == str(UNIT // 4).encode()
        assert (await living.admit(claim_on(plan, 1))).refusal is not None
        for limiter in limiters[1:]:
            limiter.use_feed(SpendFeed(version=time.time_ns() // 1000, finished=("jrn_0",)))
        await until(lambda: store.hget(window, "unposted:jrn_0") is None)
        await until(lambda: not store.hexists("{forebay}:dead", "jrn_0"))


async def test_a_slow_worker_that_was_buried_comes_back_whole(
    limiters: list[RedisLimiter], valkey_url: str
) -> None:
    plan = make_plan(make_budget("1"))
    slow, other = limiters[:2]
    assert (await slow.admit(claim_on(plan, UNIT))).refusal is None
    with redis.Redis.from_url(valkey_url) as store:
        store.hdel("{forebay}:state", "jrn_0")
        store.hset("{forebay}:dead", "jrn_0", "held")
        store.delete(*store.keys("{forebay}:m:*"))
        # Its next call is refused, it writes back what it holds, and asks again.
        assert (await slow.admit(claim_on(plan, 1))).refusal is not None
        assert (await other.admit(claim_on(plan, 1))).refusal is not None
        assert not store.hexists("{forebay}:dead", "jrn_0")


async def test_counters_expire_and_refusals_keep_nothing_alive(
    limiters: list[RedisLimiter], valkey_url: str
) -> None:
    """Case 46."""
    plan = make_plan(make_limit("requests", 1, 60), make_limit("in_flight", 9), make_budget("1"))
    assert (await limiters[0].admit(claim_on(plan, 5))).refusal is None
    with redis.Redis.from_url(valkey_url) as store:
        keys = [*store.keys("{forebay}:b:*"), *store.keys("{forebay}:[fm]:*")]
        assert len(keys) == 3
        before = [(store.dump(key), store.pexpiretime(key)) for key in keys]
        assert all(at > 0 for _, at in before)
        for limiter in limiters:
            for _ in range(20):
                assert (await limiter.admit(claim_on(plan, 5))).refusal is not None
        after = [(store.dump(key), store.pexpiretime(key)) for key in keys]
        bucket = keys.index(b"{forebay}:b:lim_requests")
        assert after[bucket] == before[bucket]
        assert store.pttl("{forebay}:b:lim_requests") <= 70_000


async def test_each_knows_its_place_among_the_living(valkey_url: str) -> None:
    """Whatever host they are on: what is divided by it adds up to the whole."""
    places: dict[int, Places] = {}
    made = [
        RedisLimiter(
            valkey_url,
            f"jrn_{n}",
            workers=1,
            decision_seconds=10,
            on_places=partial(keep, places, n),
        )
        for n in range(3)
    ]
    for limiter in made:
        await limiter.start()
    await until(lambda: sorted(places.items()) == [(n, Places(3, n)) for n in range(3)])
    await made[0].close()
    await until(lambda: (places[1], places[2]) == (Places(2, 0), Places(2, 1)))
    await asyncio.gather(*(limiter.close() for limiter in made[1:]))


def keep(places: dict[int, Places], number: int, found: Places) -> None:
    places[number] = found


async def test_keys_share_one_slot(limiters: list[RedisLimiter], valkey_url: str) -> None:
    plan = make_plan(make_limit(), make_limit("in_flight"), make_budget())
    await limiters[0].admit(claim_on(plan, 5))
    with redis.Redis.from_url(valkey_url) as store:
        assert all(key.startswith(b"{forebay}:") for key in store.scan_iter())
