"""Redis forgets how full the buckets are, again and again: nothing is admitted twice for it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from gateway.dataplane.limits import membership
from gateway.dataplane.limits.redis_limiter import RedisLimiter
from gateway.dataplane.limits.types import LimitPlan
from tests.factories.limits import make_claim, make_limit, make_plan
from tests.fixtures.limiters import MortalValkey, until, until_alone, until_ready

DAY = 86_400


@pytest.fixture
def server(valkey_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey_url) as client:
        yield client


async def admit(limiter: RedisLimiter, plan: LimitPlan, times: int = 1) -> int:
    """Return how many of so many claims were admitted, one after the other."""
    admitted = 0
    for _ in range(times):
        claim = make_claim(
            plan, input_tokens=3, output_tokens=7, started_at_us=time.time_ns() // 1000
        )
        admitted += (await limiter.admit(claim)).refusal is None
    return admitted


async def test_what_was_admitted_before_and_after_adds_up(
    limiters: list[RedisLimiter], server: redis.Redis
) -> None:
    plan = make_plan(make_limit("requests", 100, DAY), make_limit("total_tokens", 10_000, DAY))
    first, second, third, _ = limiters
    assert await admit(first, plan, 10) == 10
    assert await admit(second, plan, 20) == 20  # of which the first has not heard
    server.flushall()
    assert await admit(first, plan, 15) == 15
    assert await admit(second, plan, 30) + await admit(first, plan, 30) == 55
    assert await admit(third, plan) == 0


async def test_near_a_limit_the_memory_of_all_is_waited_for(
    limiters: list[RedisLimiter], server: redis.Redis
) -> None:
    plan = make_plan(make_limit("requests", 60, DAY))
    first, second, *_ = limiters
    assert await admit(first, plan, 20) == 20
    assert await admit(second, plan, 40) == 40
    server.flushall()
    assert await admit(first, plan) == 0  # also where the second has nothing to ask


async def test_a_full_minute_ago_is_no_room_now(
    limiters: list[RedisLimiter], server: redis.Redis
) -> None:
    """What a bucket leaked meanwhile is leaked once, of what was before and of what came after."""
    plan = make_plan(make_limit("requests", 10, 1))
    first, second, *_ = limiters
    assert await admit(second, plan, 9) == 9
    server.flushall()
    began_at = time.monotonic()
    admitted = 0
    while time.monotonic() < began_at + 1.5:
        admitted += await admit(first, plan)
        await asyncio.sleep(0.02)
    assert admitted <= 10 - 9 + (time.monotonic() - began_at) * 10 + 1


@pytest.mark.faults
async def test_after_an_outage_what_others_were_admitted_since_is_on_top(
    mortal_valkey: MortalValkey, tmp_path: Path
) -> None:
    """Half of a limit is given before all are back: it is in no memory of who comes later."""
    way = tmp_path / "way"
    way.symlink_to(mortal_valkey.url.removeprefix("unix://"))
    first = RedisLimiter(mortal_valkey.url, "jrn_1", workers=2, decision_seconds=10)
    second = RedisLimiter(f"unix://{way}", "jrn_2", workers=2, decision_seconds=10)
    await asyncio.gather(first.start(), second.start())
    await until_ready(first, second)
    plan = make_plan(make_limit("requests", 100, DAY))
    assert await admit(first, plan, 10) == 10
    assert await admit(second, plan, 20) == 20
    way.unlink()
    mortal_valkey.kill()
    await until_alone(first, second)
    mortal_valkey.start_empty()
    await until(lambda: first.is_shared)
    assert await admit(first, plan, 15) == 15
    assert not first.is_ready
    way.symlink_to(mortal_valkey.url.removeprefix("unix://"))
    await until_ready(first, second)
    assert await admit(second, plan, 30) + await admit(first, plan, 30) == 55
    await asyncio.gather(first.close(), second.close())


async def test_flushed_all_the_time_a_limit_holds(
    limiters: list[RedisLimiter], server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "BEAT_SECONDS", 0.02)
    plan = make_plan(make_limit("requests", 600, DAY))
    draw = random.Random(7)
    admitted = 0

    async def client(limiter: RedisLimiter) -> None:
        nonlocal admitted
        while await admit(limiter, plan):
            admitted += 1
            await asyncio.sleep(draw.random() * 0.02)

    clients = [asyncio.create_task(client(limiter)) for limiter in limiters for _ in range(4)]
    while admitted < 450:
        await asyncio.sleep(draw.random() * 0.1)
        await asyncio.to_thread(server.flushall)
    await asyncio.gather(*clients)
    assert admitted == 600
