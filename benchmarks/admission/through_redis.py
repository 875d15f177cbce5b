"""The gateway's CPU of one admission through Redis, at a rate that is offered evenly."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks.admission.claims import make_claim
from benchmarks.admission.settled_collector import settled_collector
from gateway.dataplane.limits.redis_limiter import RedisLimiter
from gateway.up.valkey import EmbeddedValkey, find_valkey_program

_LASTS_SECONDS = 0.02
_TICK_SECONDS = 0.001


class NotMeasuredError(Exception):
    """There is no Valkey, or the limiter did not decide through it all the time."""


@dataclass(frozen=True)
class ThroughRedis:
    """What an admission and its settlement cost the gateway, and how long one waited for it."""

    difference_median_us: float
    difference_lowest_us: float
    without_us: float  # of a request of the same loop without a limiter
    wait_p50_ms: float
    wait_p99_ms: float
    requests_per_second: int
    rounds: int


def measure(directory: Path, *, rate: int, seconds: float, rounds: int) -> ThroughRedis:
    """Measure in a Valkey of its own. Raises :class:`NotMeasuredError`."""
    program = find_valkey_program(None)
    if program is None:
        raise NotMeasuredError("There is no Valkey for this platform.")
    server = EmbeddedValkey(directory / "valkey", program=program)
    server.start()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_measure(server.url, rate, seconds, rounds))
    finally:
        server.stop()


async def _measure(url: str, rate: int, seconds: float, rounds: int) -> ThroughRedis:
    limiter = RedisLimiter(url, "jrn_bench")
    await limiter.start()
    try:
        give_up_at = time.monotonic() + 10
        while not limiter.is_ready:
            if time.monotonic() > give_up_at:
                raise NotMeasuredError("The limiter did not become ready.")
            await asyncio.sleep(0.01)
        without: list[float] = []
        differences: list[float] = []
        waits: list[float] = []
        with settled_collector():
            await _offer(limiter, rate, min(seconds, 1.0))
            for _ in range(rounds):
                without.append((await _offer(None, rate, seconds))[0])
                cost, waited = await _offer(limiter, rate, seconds)
                differences.append(cost - without[-1])
                waits += waited
    finally:
        await limiter.close()
    waits.sort()
    return ThroughRedis(
        *(statistics.median(differences), min(differences), statistics.median(without)),
        *(waits[len(waits) // 2] * 1e3, waits[len(waits) * 99 // 100] * 1e3),
        *(rate, rounds),
    )


async def _offer(
    limiter: RedisLimiter | None, rate: int, seconds: float
) -> tuple[float, list[float]]:
    """Return microseconds of CPU a request, and what each waited for its decision."""
    loop = asyncio.get_running_loop()
    waits: list[float] = []
    strange = 0

    async def serve(number: int) -> None:
        nonlocal strange
        claim = make_claim(number)
        asked_at = loop.time()
        if limiter is not None:
            outcome = await limiter.admit(claim)
            strange += outcome.refusal is not None or not limiter.is_shared
        waits.append(loop.time() - asked_at)
        await asyncio.sleep(_LASTS_SECONDS)
        if limiter is not None:
            limiter.settle(
                claim,
                input_tokens=110,
                output_tokens=150,
                charge_nano=900,
                journal_point=(0, number),
            )

    number, total = 0, int(rate * seconds)
    begun_at, cpu_before = loop.time(), time.process_time()
    async with asyncio.TaskGroup() as group:
        while number < total:
            due = min(total, int((loop.time() - begun_at) * rate))
            for each in range(number, due):
                group.create_task(serve(each))
            number = max(number, due)
            await asyncio.sleep(_TICK_SECONDS)
    cpu_seconds = time.process_time() - cpu_before
    if strange:
        raise NotMeasuredError(f"{strange} of {total} decisions were not Redis's, or refusals.")
    return cpu_seconds / total * 1e6, waits
