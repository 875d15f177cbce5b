"""Percentiles and rates with the interval in which they are known. Pure; all chance is handed in.

A percentile is a value that occurred (nearest rank). Its interval is a block bootstrap: requests
that follow each other wait in the same queue and are alike, so whole blocks of neighbours are drawn.
A rate's interval is that of the means of equal slices of the time (batch means).
"""

from __future__ import annotations

import math
import random
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

T = TypeVar("T")
PARTS = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
BLOCKS = 20
SLICES = 10
_RESAMPLES = 200
_MOST_VALUES = 5_000  # of a bootstrap; more are thinned evenly
_CONFIDENCE = 0.95
# Student's t for the middle 95 %, by degrees of freedom.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, and the middle 95 % of where it may be."""

    value: float
    low: float
    high: float


def quantile(ordered: Sequence[float], part: float) -> float:
    """Return the smallest of the ascending values that ``part`` of them do not exceed."""
    return ordered[_rank(len(ordered), part)]


def _rank(count: int, part: float) -> int:
    return max(0, math.ceil(part * count - 1e-9) - 1)


def estimate_percentiles(values: Sequence[float], rng: random.Random) -> dict[str, Estimate]:
    """Return p50, p95 and p99 of values in the order in which they came; {} of none."""
    return estimate_of_blocks(cut_blocks(values), rng)


def cut_blocks(values: Sequence[T]) -> list[Sequence[T]]:
    """Return the values as at most :data:`BLOCKS` runs of neighbours, none empty."""
    count = min(BLOCKS, len(values))
    edges = [len(values) * number // max(count, 1) for number in range(count + 1)]
    return [values[edges[number] : edges[number + 1]] for number in range(count)]


def estimate_of_blocks(
    blocks: Sequence[Sequence[float]], rng: random.Random
) -> dict[str, Estimate]:
    """Return p50, p95 and p99 of all blocks' values together; {} of no values."""
    blocks = [block for block in blocks if block]
    if not blocks:
        return {}
    every = sorted(value for block in blocks for value in block)
    drawn = _bootstrap(_thin(blocks, len(every)), rng)
    found: dict[str, Estimate] = {}
    for name, part in PARTS.items():
        value = quantile(every, part)
        low, high = _middle([sample[name] for sample in drawn])
        found[name] = Estimate(value, min(low, value), max(high, value))
    return found


def _thin(blocks: Sequence[Sequence[float]], count: int) -> Sequence[Sequence[float]]:
    every = -(-count // _MOST_VALUES)
    return blocks if every == 1 else [block[::every] for block in blocks]


def _bootstrap(blocks: Sequence[Sequence[float]], rng: random.Random) -> list[dict[str, float]]:
    tagged = sorted((value, number) for number, block in enumerate(blocks) for value in block)
    values = [value for value, _ in tagged]
    tags = [number for _, number in tagged]
    samples: list[dict[str, float]] = []
    for _ in range(_RESAMPLES):
        times = [0] * len(blocks)  # that each block was drawn
        for number in rng.choices(range(len(blocks)), k=len(blocks)):
            times[number] += 1
        upto = list(accumulate(map(times.__getitem__, tags)))
        samples.append(
            {
                name: values[bisect_left(upto, _rank(upto[-1], part) + 1)]
                for name, part in PARTS.items()
            }
        )
    return samples


def _middle(values: list[float]) -> tuple[float, float]:
    values.sort()
    tail = (1 - _CONFIDENCE) / 2
    return quantile(values, tail), quantile(values, 1 - tail)


def estimate_mean(slices: Sequence[float]) -> Estimate:
    """Return the mean of equal slices of time, none below 0. Raises ValueError of no slices."""
    if not slices:
        raise ValueError("a mean needs values")
    mean = statistics.fmean(slices)
    if len(slices) < 2:
        return Estimate(mean, 0.0, math.inf)
    degrees = len(slices) - 1
    student = _STUDENT[degrees - 1] if degrees <= len(_STUDENT) else 1.96
    spread = student * statistics.stdev(slices) / math.sqrt(len(slices))
    return Estimate(mean, max(0.0, mean - spread), mean + spread)
