"""A wait that is cancelled, at any moment, leaves nothing claimed."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
import redis

from gateway.dataplane.limits.redis_limiter import RedisLimiter
from gateway.dataplane.limits.types import Claim
from tests.factories.limits import UNIT, make_budget, make_claim, make_limit, make_plan
from tests.fixtures.limiters import until, until_ready

PLAN = make_plan(
    make_limit("requests", 100, 86_400),
    make_limit("total_tokens", 10_000, 86_400),
    make_limit("in_flight", 3),
    make_budget("1"),
)


@pytest.fixture
async def limiter(valkey_url: str) -> RedisLimiter:
    made = RedisLimiter(valkey_url, "jrn_0", decision_seconds=10)
    await made.start()
    await until_ready(made)
    return made


def new_claim() -> Claim:
    return make_claim(PLAN, hold_nano=UNIT // 3, started_at_us=time.time_ns() // 1000)


async def is_untouched(limiter: RedisLimiter, url: str) -> bool:
    """Everything is there for the next one, and it finds nothing used."""
    connection = limiter.find_connection()
    assert connection is not None
    # Answers that are on their way, and what is sent after them.
    await until(lambda: not connection._waiting)
    claim = make_claim(PLAN, hold_nano=UNIT, started_at_us=time.time_ns() // 1000)
    outcome = await limiter.admit(claim)
    assert outcome.refusal is None, outcome
    assert outcome.requests is not None
    assert outcome.tokens is not None
    counts = (outcome.requests.remaining, outcome.tokens.remaining)
    with redis.Redis.from_url(url) as store:
        places = store.zcard("{forebay}:f:lim_in_flight")
    limiter.undo(claim)
    return (counts, places) == ((99, 9_970), 1)


@pytest.mark.parametrize("turns", range(12))
async def test_cancelled_after_so_many_turns(
    limiter: RedisLimiter, valkey_url: str, turns: int
) -> None:
    task = asyncio.ensure_future(limiter.admit(new_claim()))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
        for claim in list(limiter._own.running.values()):  # it had been answered before
            limiter.undo(claim)
    assert await is_untouched(limiter, valkey_url)
    await limiter.close()


async def test_cancelled_between_the_answer_and_its_reader(
    limiter: RedisLimiter, valkey_url: str
) -> None:
    """The answer is there and its reader is about to run when the cancellation comes."""
    claim = make_claim(PLAN, hold_nano=UNIT // 3, started_at_us=time.time_ns() // 1000)
    task = asyncio.ensure_future(limiter.admit(claim))
    for _ in range(100_000):
        if claim.state is not None:  # set in the same turn as the answer
            break
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert claim.state is None
    assert await is_untouched(limiter, valkey_url)
    await limiter.close()


async def test_many_cancelled_at_random_moments(limiter: RedisLimiter, valkey_url: str) -> None:
    tasks = []
    for n in range(300):
        tasks.append(asyncio.ensure_future(limiter.admit(new_claim())))
        asyncio.get_running_loop().call_later(0.0001 * (n % 17), tasks[-1].cancel)
        if n % 5 == 0:
            await asyncio.sleep(0)
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(one, asyncio.CancelledError) for one in done) > 100
    for running in list(limiter._own.running.values()):  # those that were admitted in time
        limiter.undo(running)
    assert await is_untouched(limiter, valkey_url)
    await limiter.close()


async def test_a_cancelled_top_up_is_given_back_at_the_end(
    limiter: RedisLimiter, valkey_url: str
) -> None:
    for turns in range(8):
        claim = make_claim(PLAN, hold_nano=UNIT // 4, started_at_us=time.time_ns() // 1000)
        assert (await limiter.admit(claim)).refusal is None
        task = asyncio.ensure_future(limiter.top_up(claim, output_tokens=7, hold_nano=UNIT // 4))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        limiter.undo(claim)
    await asyncio.sleep(0.05)
    assert await is_untouched(limiter, valkey_url)
    await limiter.close()
