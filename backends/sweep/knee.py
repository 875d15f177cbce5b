"""The knee: the load from which more load gives no more throughput. Pure.

Closed loop. With N clients and X answers (or tokens) a second, N / X is the time that each takes, by
Little's law. Below a bend that time is a + b N (something fixed, and something each client adds),
above it it grows in proportion to N, and X stays. So

    N / X = a max(1, N / K) + b N

is fitted to the steps, in relative terms, for each K; the best K is the knee, if it explains the
steps clearly better than no bend does. A curve that flattens without a bend has a gradual knee: the
load that, doubled, gives only a tenth more.

Open loop. X is the offered rate up to what the engine can do. The knee is what it did in the step
that overran it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from backends.sweep.percentiles import Estimate, quantile

Kind = Literal["bend", "gradual", "capacity", "beyond", "below", "unknown"]
_LEAST_POINTS = 4  # three figures are fitted
_GRID = 160
_SAMPLES = 60
_SAMPLES_GRID = 80
_BETTER = 4.0  # times the noise, that a bend must explain
_LITTLE_GAIN = 0.1  # of a doubled load
# With N / X = a + b N a doubled load gives so much more where N is this many times a / b.
_GRADUAL = (1 - _LITTLE_GAIN) / (2 * _LITTLE_GAIN)


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One step: the load that was held (clients, or requests/s offered) and what came of it."""

    load: float
    rate: Estimate  # a second
    is_over_saturated: bool = False


@dataclass(frozen=True, slots=True)
class Knee:
    """Where it is. ``load``: None where it was not reached (beyond), always passed (below),
    or there are too few steps to tell (unknown)."""

    kind: Kind
    load: Estimate | None
    rate: float  # the most that was reached, or the fit's plateau


def find_closed_knee(points: Sequence[LoadPoint], rng: random.Random) -> Knee:
    """Return the knee by clients; the points rise in load and are not empty."""
    points = [point for point in points if point.rate.value > 0]
    best = max((point.rate.value for point in points), default=0.0)
    if len(points) < _LEAST_POINTS:
        return Knee("unknown", None, best)
    rows = [(point.load, point.load / point.rate.value) for point in points]
    bend, fixed, each, error = _best_bend(rows)
    straight = _fit(rows, math.inf)
    noise = sum(_relative_variance(point.rate) for point in points) / len(points)
    left = max(error / max(len(rows) - 3, 1), noise)
    lowest, highest = rows[0][0], rows[-1][0]
    if straight[2] - error > _BETTER * left:
        if bend >= highest / 1.05:
            return Knee("beyond", None, best)
        if bend <= lowest * 1.05:
            return Knee("below", None, best)
        low, high = _spread(points, rng)
        plateau = 1 / (fixed / bend + each)
        return Knee("bend", Estimate(bend, min(low, bend), max(high, bend)), plateau)
    return _gradual(straight, lowest, highest, best)


def _gradual(straight: tuple[float, float, float], low: float, high: float, best: float) -> Knee:
    fixed, each, _ = straight
    at = math.inf if each <= 0 else _GRADUAL * fixed / each
    if at >= high:
        return Knee("beyond", None, best)
    if at <= low:
        return Knee("below", None, best)
    return Knee("gradual", Estimate(at, low, high), best)


def find_open_knee(points: Sequence[LoadPoint]) -> Knee:
    """Return the knee by requests/s; rates are completed requests a second."""
    overrun = [point for point in points if point.is_over_saturated]
    sustained = [point.rate.value for point in points if not point.is_over_saturated]
    most = max(sustained, default=0.0)
    if not overrun:
        return Knee("beyond", None, most)
    strongest = max(overrun, key=lambda point: point.rate.value).rate
    value = max(strongest.value, most)
    at = Estimate(value, min(strongest.low, value), max(strongest.high, value))
    return Knee("capacity", at, value)


def _relative_variance(rate: Estimate) -> float:
    if not math.isfinite(rate.high):
        return 0.0
    return ((rate.high - rate.low) / 4 / rate.value) ** 2


def _spread(points: Sequence[LoadPoint], rng: random.Random) -> tuple[float, float]:
    """Return the middle 95 % of knees of curves that differ as the rates' intervals allow."""
    knees = []
    for _ in range(_SAMPLES):
        rows = []
        for point in points:
            deviation = math.sqrt(_relative_variance(point.rate))
            rate = point.rate.value * max(0.05, 1 + rng.gauss(0, deviation))
            rows.append((point.load, point.load / rate))
        knees.append(_coarse_bend(rows, _SAMPLES_GRID))
    knees.sort()
    return quantile(knees, 0.025), quantile(knees, 0.975)


def _best_bend(rows: Sequence[tuple[float, float]]) -> tuple[float, float, float, float]:
    """Return the best bend with its a, b and sum of squared relative errors."""
    bend = _coarse_bend(rows, _GRID)
    step = (rows[-1][0] / rows[0][0]) ** (1 / _GRID)
    near = [bend * step ** (place / 20 - 1) for place in range(41)]
    bend = min(near, key=lambda at: _fit(rows, at)[2])
    fixed, each, error = _fit(rows, bend)
    return bend, fixed, each, error


def _coarse_bend(rows: Sequence[tuple[float, float]], count: int) -> float:
    low = rows[0][0]
    ratio = rows[-1][0] / low
    grid = [float(low * ratio ** (place / count)) for place in range(count + 1)]
    return min(grid, key=lambda at: _fit(rows, at)[2])


def _fit(rows: Sequence[tuple[float, float]], bend: float) -> tuple[float, float, float]:
    """Return a and b of at least 0 for a bend, and the sum of squared relative errors."""
    xx = xy = yy = x1 = y1 = 0.0
    for load, seconds in rows:
        x = max(1.0, load / bend) / seconds
        y = load / seconds
        xx += x * x
        xy += x * y
        yy += y * y
        x1 += x
        y1 += y
    count = len(rows)
    determinant = xx * yy - xy * xy
    candidates = [(x1 / xx, 0.0), (0.0, y1 / yy)]
    if determinant > 1e-12 * xx * yy:
        fixed = (x1 * yy - y1 * xy) / determinant
        each = (y1 * xx - x1 * xy) / determinant
        if fixed >= 0 and each >= 0:
            candidates = [(fixed, each)]

    def error(fixed: float, each: float) -> float:
        squares = fixed * fixed * xx + each * each * yy + 2 * fixed * each * xy
        return max(0.0, squares - 2 * (fixed * x1 + each * y1) + count)

    fixed, each = min(candidates, key=lambda pair: error(*pair))
    return fixed, each, error(fixed, each)
