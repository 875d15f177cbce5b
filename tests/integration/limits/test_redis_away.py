"""Redis killed, stopped, emptied and slow, under load: no error, no overspending, nothing left."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from pathlib import Path

import pytest
import redis

from gateway.dataplane.limits.redis_limiter import RedisLimiter
from gateway.dataplane.limits.resp_connection import Haste, RespConnection, command
from gateway.dataplane.limits.types import Claim, LimitPlan, Outcome
from tests.factories.limits import UNIT, make_budget, make_claim, make_limit, make_plan
from tests.fixtures.limiters import MortalValkey, until, until_alone, until_ready

pytestmark = pytest.mark.faults


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


async def start(url: str, workers: int) -> list[RedisLimiter]:
    limiters = [RedisLimiter(url, f"jrn_{n}", workers=workers) for n in range(workers)]
    await asyncio.gather(*(limiter.start() for limiter in limiters))
    await until_ready(*limiters)
    return limiters


async def close(limiters: list[RedisLimiter]) -> None:
    await asyncio.gather(*(limiter.close() for limiter in limiters))


async def test_without_redis_each_takes_its_share(
    mortal_valkey: MortalValkey, caplog: pytest.LogCaptureFixture
) -> None:
    """Case 40: stopped during load; logged once; back without a restart."""
    limiters = await start(mortal_valkey.url, 4)
    plan = make_plan(make_limit("requests", 20, 3600), make_limit("in_flight", 100))
    first = [await limiters[0].admit(claim_on(plan)) for _ in range(4)]
    mortal_valkey.kill()
    with caplog.at_level(logging.WARNING):
        outcomes: list[Outcome] = await asyncio.gather(
            *(limiter.admit(claim_on(plan)) for limiter in limiters for _ in range(50))
        )
        await until_alone(*limiters)
    assert all(outcome.refusal is None for outcome in first)
    admitted = sum(outcome.refusal is None for outcome in outcomes)
    # The first worker knows that 4 of 20 are gone: 4 of its 5 are left. The others have not heard.
    assert admitted == 4 + 3 * 5
    away = [record for record in caplog.records if "away" in record.getMessage()]
    assert len(away) == len(limiters)
    mortal_valkey.start_empty()
    await until_ready(*limiters)
    refusal = (await limiters[1].admit(claim_on(plan))).refusal
    assert refusal is not None  # what was used while Redis was away is not forgotten
    await close(limiters)


async def test_a_worker_starts_without_redis(mortal_valkey: MortalValkey) -> None:
    mortal_valkey.kill()
    limiter = RedisLimiter(mortal_valkey.url, "jrn_0", workers=2)
    await limiter.start()
    plan = make_plan(make_limit("requests", 4, 3600), make_budget("1"))
    outcomes = [await limiter.admit(claim_on(plan, UNIT // 4)) for _ in range(4)]
    assert [outcome.refusal is None for outcome in outcomes] == [True, True, False, False]
    await limiter.close()


async def test_a_redis_that_does_not_answer_costs_a_tenth_of_a_second_once(
    mortal_valkey: MortalValkey,
) -> None:
    limiters = await start(mortal_valkey.url, 1)
    plan = make_plan(make_limit("requests", 1000, 86_400))
    mortal_valkey.stop_answering()
    try:
        began_at = time.monotonic()
        await asyncio.gather(*(limiters[0].admit(claim_on(plan)) for _ in range(100)))
        first_seconds = time.monotonic() - began_at
        began_at = time.monotonic()
        for _ in range(100):
            await limiters[0].admit(claim_on(plan))
        rest_seconds = time.monotonic() - began_at
    finally:
        mortal_valkey.go_on()
    assert first_seconds < 1.0  # 0.11 on an idle machine
    assert rest_seconds < 0.1
    await until_ready(*limiters)
    outcome = await limiters[0].admit(claim_on(plan))
    assert outcome.requests is not None
    assert outcome.requests.remaining <= 800  # the calls that arrived late were refused
    await close(limiters)


@pytest.mark.parametrize("fault", ["kill", "flush", "restart"])
async def test_a_hard_budget_survives_the_loss_of_memory(
    mortal_valkey: MortalValkey, fault: str
) -> None:
    """No more than the budget, whatever happens to Redis in the middle; nothing stays held."""
    limiters = await start(mortal_valkey.url, 4)
    plan = make_plan(make_budget("1"), make_limit("in_flight", 50))
    hold = UNIT // 100
    charged = most = 0
    stop = asyncio.Event()
    numbers = itertools.count()
    holding: dict[int, int] = {}

    async def client(limiter: RedisLimiter) -> None:
        nonlocal charged, most
        while not stop.is_set():
            claim, n = claim_on(plan, hold), next(numbers)
            if (await limiter.admit(claim)).refusal is None:
                holding[n] = hold
                most = max(most, charged + sum(holding.values()))
                await asyncio.sleep(0.02)
                del holding[n]
                charge = hold // 20
                charged += charge
                settle(limiter, claim, charge)
            await asyncio.sleep(0.002)

    clients = [asyncio.create_task(client(limiter)) for limiter in limiters for _ in range(8)]
    await asyncio.sleep(0.3)
    if fault == "flush":
        with redis.Redis.from_url(mortal_valkey.url) as store:
            store.flushall()
    else:
        mortal_valkey.kill()
        await until_alone(*limiters)
        await asyncio.sleep(0.2)
        mortal_valkey.start_empty() if fault == "kill" else mortal_valkey.start()
    await asyncio.sleep(0.05)
    await until_ready(*limiters)
    await asyncio.sleep(0.5)
    stop.set()
    await asyncio.gather(*clients)
    await asyncio.sleep(0.05)  # settlements wait some milliseconds for company
    assert charged > 0
    # A worker that is cut off has last heard of the others some milliseconds before: at most what
    # they were admitted since. While Redis answers there is no such gap.
    assert most <= (UNIT if fault == "flush" else UNIT + 31 * hold)
    # What is left is exactly what was not charged.
    assert (await limiters[0].admit(claim_on(plan, UNIT - charged + 1))).refusal is not None
    assert (await limiters[1].admit(claim_on(plan, UNIT - charged))).refusal is None
    await close(limiters)


async def test_places_in_flight_come_back_with_redis(mortal_valkey: MortalValkey) -> None:
    limiters = await start(mortal_valkey.url, 2)
    plan = make_plan(make_limit("in_flight", 4))
    kept, ended = claim_on(plan), claim_on(plan)
    for claim in (kept, ended):
        assert (await limiters[0].admit(claim)).refusal is None
    mortal_valkey.kill()
    await until_alone(*limiters)
    settle(limiters[0], ended)
    local = claim_on(plan)
    assert (await limiters[1].admit(local)).refusal is None
    mortal_valkey.start_empty()
    await until_ready(*limiters)
    with redis.Redis.from_url(mortal_valkey.url) as store:
        ids = {kept.request_id.encode(), local.request_id.encode()}
        assert set(store.zrange("{forebay}:f:lim_in_flight", 0, -1)) == ids
    outcomes = [await limiters[0].admit(claim_on(plan)) for _ in range(4)]
    assert sum(outcome.refusal is None for outcome in outcomes) == 2
    await close(limiters)


async def test_who_alone_has_lost_redis_adds_its_share_and_no_more(
    mortal_valkey: MortalValkey, tmp_path: Path
) -> None:
    """The bound of docs/admission.md: it does not see what runs elsewhere, nor others what it begins."""
    server = mortal_valkey.url.removeprefix("unix://")
    way = tmp_path / "way"
    way.symlink_to(server)
    limiters = [
        RedisLimiter(url, f"jrn_{n}", workers=2)
        for n, url in enumerate((mortal_valkey.url, f"unix://{way}"))
    ]
    await asyncio.gather(*(limiter.start() for limiter in limiters))
    await until_ready(*limiters)
    plan = make_plan(make_limit("in_flight", 4))

    async def take(limiter: RedisLimiter, asked: int) -> list[Claim]:
        claims = [claim_on(plan) for _ in range(asked)]
        await asyncio.gather(*(limiter.admit(claim) for claim in claims))
        return [claim for claim in claims if claim.state is not None]

    here = await take(limiters[0], 6)
    assert len(here) == 4
    way.unlink()
    connection = limiters[1].find_connection()
    assert connection is not None
    connection.close("cut")
    there = await take(limiters[1], 6)
    assert len(there) == 2
    way.symlink_to(server)
    await until_ready(*limiters)
    for claim, free in ((here[0], 0), (here[1], 0), (here[2], 1)):  # 6, 5 and 4 run before each
        settle(limiters[0], claim)
        assert len(await take(limiters[1], 2)) == free
    await close(limiters)


async def test_forgotten_scripts_are_loaded_again(mortal_valkey: MortalValkey) -> None:
    limiters = await start(mortal_valkey.url, 1)
    plan = make_plan(make_limit("requests", 3, 3600))
    await limiters[0].admit(claim_on(plan))
    with redis.Redis.from_url(mortal_valkey.url) as store:
        store.script_flush()
    assert (await limiters[0].admit(claim_on(plan))).refusal is None
    await until_ready(*limiters)
    outcomes = [await limiters[0].admit(claim_on(plan)) for _ in range(2)]
    assert [outcome.refusal is None for outcome in outcomes] == [True, False]
    await close(limiters)


async def test_answers_behind_the_one_that_ends_a_connection_are_nobodys(
    mortal_valkey: MortalValkey, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    answers: list[tuple[int, object]] = []

    def hear(number: int, reply: object) -> None:
        answers.append((number, reply))
        connection.close("enough")

    _, connection = await loop.create_unix_connection(
        lambda: RespConnection(timeout_seconds=10, on_lost=lambda _: None),
        mortal_valkey.url.removeprefix("unix://"),
    )
    for number in range(5):
        connection.send(command(b"PING"), hear, number, Haste.NEXT)
    connection.flush()
    await until(lambda: len(answers) == 5)
    assert answers == [(0, b"PONG"), *((number, None) for number in range(1, 5))]
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


async def test_a_connection_that_was_cut_is_made_again_at_once(
    mortal_valkey: MortalValkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is there: not a second alone for it; of a server that ends each, only once."""
    monkeypatch.setattr("gateway.dataplane.limits.membership.PROBE_SECONDS", 3600.0)
    limiters = await start(mortal_valkey.url, 2)
    plan = make_plan(make_limit("requests", 4, 86_400))
    assert (await limiters[0].admit(claim_on(plan))).refusal is None
    with redis.Redis.from_url(mortal_valkey.url) as store:
        before = [limiter.find_connection() for limiter in limiters]
        store.client_kill_filter(_type="normal", skipme=True)
        await until(lambda: all(connection.is_lost for connection in before if connection))
        await until_ready(*limiters)
        admitted = [(await limiters[1].admit(claim_on(plan))).refusal is None for _ in range(5)]
        assert admitted == [True, True, True, False, False]
        store.client_kill_filter(_type="normal", skipme=True)
    await until_alone(*limiters)
    await asyncio.sleep(0.1)
    assert not any(limiter.is_shared for limiter in limiters)
    await close(limiters)
