"""The measurements, one after the other against one target."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from benchmarks.overload.offer import OpenLoop, Tally
from benchmarks.overload.plan import BATCH_TIMEOUT_SECONDS, MAX_IN_FLIGHT, Plan, Sender, Target

_OVERLOAD = 10.0  # times the capacity, in the measurements of fairness
_PAUSE_SECONDS = 1.0  # for what was cut off to be gone


@dataclass(frozen=True, slots=True)
class Level:
    """One load, and what came of it."""

    times_capacity: float
    offered_per_second: float
    goodput_per_second: float
    goodput_tokens_per_second: float
    attempts_per_second: float  # served, refused and left
    p50_seconds: float | None  # of the served
    p99_seconds: float | None
    p50_first_seconds: float | None  # to first content, of the streams that were admitted
    p99_first_seconds: float | None
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Share:
    """What each sender was served while all of them asked for more."""

    served_tokens_per_second: dict[str, float]
    offered_per_second: dict[str, float]


async def find_capacity(target: Target, plan: Plan) -> float:
    """Return the requests/s of a closed loop that keeps every slot of the engine busy."""
    sender = Sender("closed", target.secrets[0], target.models[0], per_second=1.0)
    tally = await OpenLoop(target, [sender]).saturate(
        sender, MAX_IN_FLIGHT, 2.0, plan.calibration_seconds
    )
    served = tally.good + tally.late
    if not served:
        raise RuntimeError(f"{target.name} serves nothing: {_counts(tally)}")
    return served / plan.calibration_seconds


async def measure_level(target: Target, plan: Plan, times: float, capacity: float) -> Level:
    """Offer ``times`` the capacity from one organization."""
    sender = Sender("one", target.secrets[0], target.models[0], times * capacity)
    tallies = await _run(target, plan, sender)
    tally = tallies["one"]
    seconds, first = sorted(tally.seconds), sorted(tally.first_seconds)
    attempts = len(seconds) + tally.refused + tally.left + tally.failed
    return Level(
        times_capacity=times,
        offered_per_second=sender.per_second,
        goodput_per_second=tally.good / plan.measured_seconds,
        goodput_tokens_per_second=tally.good_tokens / plan.measured_seconds,
        attempts_per_second=attempts / plan.measured_seconds,
        p50_seconds=_quantile(seconds, 0.5),
        p99_seconds=_quantile(seconds, 0.99),
        p50_first_seconds=_quantile(first, 0.5),
        p99_first_seconds=_quantile(first, 0.99),
        counts=_counts(tally),
    )


async def measure_organizations(target: Target, plan: Plan, capacity: float) -> Share:
    """Let one organization send ten times what another does, together ten times the capacity."""
    few = _OVERLOAD / 11 * capacity
    return await _share(
        target,
        plan,
        Sender("flood", target.secrets[0], target.models[0], 10 * few),
        Sender("modest", target.secrets[1], target.models[0], few),
    )


async def measure_classes(target: Target, plan: Plan, capacity: float) -> Share:
    """Let interactive and batch each ask for five times the capacity."""
    half = _OVERLOAD / 2 * capacity
    return await _share(
        target,
        plan,
        Sender("interactive", target.secrets[0], target.models[0], half),
        Sender("batch", target.secrets[0], target.models[1], half, BATCH_TIMEOUT_SECONDS),
    )


async def _share(target: Target, plan: Plan, *senders: Sender) -> Share:
    tallies = await _run(target, plan, *senders)
    return Share(
        served_tokens_per_second={
            name: tally.served_tokens / plan.measured_seconds for name, tally in tallies.items()
        },
        offered_per_second={sender.name: sender.per_second for sender in senders},
    )


async def _run(target: Target, plan: Plan, *senders: Sender) -> dict[str, Tally]:
    tallies = await OpenLoop(target, senders).run(plan.warm_up_seconds, plan.measured_seconds)
    await asyncio.sleep(_PAUSE_SECONDS)
    return tallies


def _counts(tally: Tally) -> dict[str, int]:
    names: Any = type(tally).__slots__
    return {name: getattr(tally, name) for name in names if not name.endswith("seconds")}


def _quantile(ordered: list[float], part: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else None
