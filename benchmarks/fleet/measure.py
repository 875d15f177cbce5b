"""The figures: each way to choose on the same arrivals, several seeds, at a share of the capacity."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from backends.simulated.pace import PROFILES, Pace
from benchmarks.fleet.policies import POLICIES, PolicyMaker, RoundRobin
from benchmarks.fleet.simulate import Fleet, Run
from benchmarks.fleet.workload import Workload

# What a reply must keep to be good.
TTFT_LIMIT_SECONDS = 2.0
TPOT_LIMIT_SECONDS = 0.2
_WARM_UP_SHARE = 0.1  # of the requests, not counted: caches are empty


# About an 8B model in fp8 on a GPU of 24 GB (estimated as backends.simulated.pace does it): room for
# a running batch, and not for everything that was ever read.
PACE = Pace(
    prefill_tokens_per_second=6_000.0,
    step_ms=27.0,
    step_ms_per_sequence=0.2,
    kv_cache_tokens=96_000,
)


# The second is 8 billion parameters in bf16 on one GPU of 80 GB: quick to read a prompt, and with room
# for all prefixes at once.
PACES = {"24_gb": PACE, "80_gb": PROFILES["small"]}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    replicas: int = 8
    requests: int = 3_000
    seeds: tuple[int, ...] = (1, 2, 3)
    load: float = 0.8  # of what round-robin serves at most
    pace: Pace = PACE


QUICK = Plan(requests=150, seeds=(1,))


@dataclass(frozen=True, slots=True)
class Figures:
    """Of all seeds together; seconds."""

    p50_ttft: float
    p99_ttft: float
    p50_e2e: float
    p99_e2e: float
    hit_share: float  # of prompt tokens, found in a replica's cache
    goodput_share: float  # of requests, within both limits
    goodput_per_second: float
    p99_ttft_by_seed: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One workload."""

    capacity_per_second: float
    offered_per_second: float
    workers: int
    figures: dict[str, Figures]  # by policy


def find_capacity(workload: Workload, plan: Plan) -> float:
    """Return the requests/s that all replicas finish, taken in turns, when all are always busy."""
    drawn = workload(random.Random(0), plan.requests // 2, 1.0)
    requests = [replace(request, arrives_at=0.0) for request in drawn]
    run = Fleet(RoundRobin, [plan.pace] * plan.replicas, workers=1, seed=0).run(requests)
    first, last = len(requests) // 5, len(requests) * 7 // 10
    return (last - first) / (run.finished_at[last] - run.finished_at[first])


def compare(
    workload: Workload,
    plan: Plan,
    *,
    workers: int = 1,
    policies: dict[str, PolicyMaker] = POLICIES,
    capacity: float | None = None,
) -> Comparison:
    """Run every policy on the same arrivals."""
    if capacity is None:
        capacity = find_capacity(workload, plan)
    offered = plan.load * capacity
    figures = {}
    for name, make in policies.items():
        runs = []
        for seed in plan.seeds:
            requests = workload(random.Random(seed), plan.requests, offered)
            fleet = Fleet(make, [plan.pace] * plan.replicas, workers=workers, seed=seed)
            runs.append(fleet.run(requests))
        figures[name] = _summarize(runs, offered)
    return Comparison(capacity, offered, workers, figures)


def _summarize(runs: Sequence[Run], offered: float) -> Figures:
    counted = [run.timings[int(len(run.timings) * _WARM_UP_SHARE) :] for run in runs]
    timings = [timing for part in counted for timing in part]
    ttfts = sorted(timing.ttft for timing in timings)
    e2es = sorted(timing.e2e for timing in timings)
    good = sum(
        timing.ttft <= TTFT_LIMIT_SECONDS and timing.tpot <= TPOT_LIMIT_SECONDS
        for timing in timings
    )
    return Figures(
        p50_ttft=quantile(ttfts, 0.5),
        p99_ttft=quantile(ttfts, 0.99),
        p50_e2e=quantile(e2es, 0.5),
        p99_e2e=quantile(e2es, 0.99),
        hit_share=sum(run.hit_tokens for run in runs) / sum(run.prompt_tokens for run in runs),
        goodput_share=good / len(timings),
        goodput_per_second=offered * good / len(timings),
        p99_ttft_by_seed=tuple(
            quantile(sorted(timing.ttft for timing in part), 0.99) for part in counted
        ),
    )


def quantile(ordered: Sequence[float], part: float) -> float:
    """Return the value below which ``part`` of the ascending ``ordered`` lies."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
