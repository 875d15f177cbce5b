"""Does the data plane's memory grow with the requests it has served?"""

from __future__ import annotations

from itertools import combinations
from statistics import median

import msgspec

from benchmarks.overhead.errors import MeasurementError
from benchmarks.overhead.measure import Bench
from benchmarks.overhead.target import Target

MILLION = 1_000_000
_STREAM_SHARE = 100  # one stream for so many JSON requests


class MemoryGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """Resident memory of the largest process while requests are served."""

    requests: int
    answered: int
    bad: int
    rss_mb: list[float]  # before the first batch, then after each
    rss_growth_mb_per_million: float
    is_extrapolated: bool  # fewer than a million requests were sent


def measure_growth(bench: Bench, target: Target) -> MemoryGrowth:
    """Send requests in batches and read the resident memory of the largest process after each.

    The slope is the median over all pairs of batches in the second half (Theil-Sen), so that one
    odd reading does not make or hide growth. It is given in MB per million requests.
    """
    process = target.process
    if process is None:
        raise MeasurementError(f"{target.name} has no process whose memory could be read.")
    plan, works = bench.plan, bench.workloads
    batch = max(1, plan.memory_requests // plan.memory_batches)
    requests, answered, bad = 0, 0, 0
    points: list[tuple[int, float]] = [(0, process.rss_mb()[0])]
    for _ in range(plan.memory_batches):
        streams = max(1, batch // _STREAM_SHARE)
        results = (
            bench.client.run(target, works.json, connections=64, requests=batch - streams),
            bench.client.run(target, works.burst_continuous, connections=8, requests=streams),
        )
        requests += batch
        answered += sum(result.answered for result in results)
        bad += sum(result.bad for result in results)
        points.append((requests, process.rss_mb()[0]))
        if target.journal:
            target.journal.read()  # also removes finished segments
    slope = slope_per_million(points[len(points) // 2 :])
    return MemoryGrowth(
        requests=requests,
        answered=answered,
        bad=bad,
        rss_mb=[round(rss, 2) for _, rss in points],
        rss_growth_mb_per_million=round(slope, 3),
        is_extrapolated=requests < MILLION,
    )


def slope_per_million(points: list[tuple[int, float]]) -> float:
    """Return the Theil-Sen slope of (requests, MB), per million requests."""
    slopes = [(rss2 - rss1) / (n2 - n1) for (n1, rss1), (n2, rss2) in combinations(points, 2)]
    return median(slopes) * MILLION
