"""The clock of Redis jumps: nobody is taken for dead, and what runs is known again at the next beat."""

from __future__ import annotations

import asyncio

import pytest

from gateway.dataplane.limits.redis_limiter import RedisLimiter
from tests.factories.limits import UNIT, SetClock, make_budget, make_claim, make_limit, make_plan
from tests.fixtures.limiters import until_ready

HOUR = 3600.0


@pytest.mark.parametrize("by_seconds", [HOUR, -HOUR])
@pytest.mark.parametrize("first", [0, 1])
async def test_what_runs_is_known_again_at_the_next_heartbeat(
    valkey_url: str, by_seconds: float, first: int
) -> None:
    clock = SetClock(1_800_000_000_000_000)
    limiters = [
        RedisLimiter(
            valkey_url, f"jrn_{n}", workers=2, wall_us=clock, now_us=clock, decision_seconds=10
        )
        for n in range(2)
    ]
    await asyncio.gather(*(limiter.start() for limiter in limiters))
    await until_ready(*limiters)
    plan = make_plan(make_limit("in_flight", 2), make_budget("1", "lifetime"))
    running = [make_claim(plan, started_at_us=clock(), hold_nano=UNIT // 4) for _ in range(2)]
    for claim in running:
        assert (await limiters[0].admit(claim)).refusal is None
    clock.advance(by_seconds)
    # Whichever beats first; those of the background come every two seconds.
    for limiter in (limiters[first], limiters[1 - first]):
        connection = limiter.find_connection()
        assert connection is not None
        reply = await connection.ask_raw(limiter._membership._beat_call())
        limiter._membership._on_beat(None, reply)
    await until_ready(*limiters)
    asked = make_claim(plan, started_at_us=clock(), hold_nano=1)
    assert (await limiters[1].admit(asked)).refusal is not None
    await asyncio.gather(*(limiter.close() for limiter in limiters))
