"""What own traffic says of a threshold: quality and cost for each, with intervals, and one to propose. Pure.

An observation is one request whose answers were compared (a sample), or whose client said what the
served answer was worth. For a threshold the requests below it count with what the lower tier was
worth, the others with the upper. Samples tell how many requests lie on either side; a client's word,
which is no sample, counts only in the means.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

NOBODY = 2.0  # a threshold above every score: all stays at the lower tier
POINTS = 40  # thresholds that are looked at, at most
RESAMPLES = 200
_LOW, _HIGH = 0.025, 0.975
_SLACK = 1e-9


class Observation(NamedTuple):
    """One request; qualities are within 0..1, None: nobody knows. Costs are in any one unit."""

    score: float  # of the classifier
    lower: float | None
    upper: float | None
    is_upper_served: bool
    is_sample: bool = True
    lower_cost: float | None = None
    upper_cost: float | None = None

    @property
    def served(self) -> float | None:
        """What the answer was worth that the client got."""
        return self.upper if self.is_upper_served else self.lower


class Estimate(NamedTuple):
    """A mean with its 95 % interval over resampled requests."""

    value: float
    low: float
    high: float


class CurvePoint(NamedTuple):
    """What a threshold does. ``quality`` None: a side has requests of whose quality nothing is known.

    ``relative_cost`` is to all at the upper tier; None where costs are not known.
    """

    threshold: float
    large_share: float
    quality: Estimate | None
    relative_cost: float | None


class Proposal(NamedTuple):
    """A threshold that meets a target. ``is_certain``: also by the low end of the interval."""

    point: CurvePoint
    wanted: float  # the quality, or the share
    is_certain: bool


class _Sums(NamedTuple):
    """Running sums up to each cell of scores: of all before it, so one more than cells."""

    samples: list[float]
    lower: list[float]
    lower_known: list[float]
    upper: list[float]
    upper_known: list[float]

    def quality(self, cell: int) -> float | None:
        """Return the quality if the cells from ``cell`` on go to the upper tier."""
        total = self.samples[-1]
        below, above = self.samples[cell], total - self.samples[cell]
        found = 0.0
        if below:
            if not self.lower_known[cell]:
                return None
            found += below * self.lower[cell] / self.lower_known[cell]
        if above:
            known = self.upper_known[-1] - self.upper_known[cell]
            if not known:
                return None
            found += above * (self.upper[-1] - self.upper[cell]) / known
        return found / total if total else None


def draw_curve(
    observations: Sequence[Observation], *, in_effect: float | None = None, seed: int = 0
) -> list[CurvePoint]:
    """Return the curve from all at the upper tier to none; empty without a sample.

    The threshold that is ``in_effect`` is one of its points. Equal scores are on one side of each, and
    the order of the observations does not matter.
    """
    observations = sorted(observations, key=_place)
    samples = sorted(one.score for one in observations if one.is_sample)
    if not samples:
        return []
    thresholds = _choose_thresholds(samples, in_effect)
    cells = [bisect_right(thresholds, one.score) for one in observations]
    # A cell more than thresholds: what is below the first of them, which no sample is.
    width = len(thresholds) + 1
    whole = _sum_cells(observations, cells, range(len(observations)), width)
    drawn = random.Random(seed)  # noqa: S311 - resampling
    resampled = [
        _sum_cells(
            observations, cells, drawn.choices(range(len(observations)), k=len(observations)), width
        )
        for _ in range(RESAMPLES)
    ]
    points = []
    for place, threshold in enumerate(thresholds):
        cell = place + 1
        above = whole.samples[-1] - whole.samples[cell]
        points.append(
            CurvePoint(
                threshold=threshold,
                large_share=above / whole.samples[-1],
                quality=_estimate(whole.quality(cell), [sums.quality(cell) for sums in resampled]),
                relative_cost=_relative_cost(observations, threshold),
            )
        )
    return points


def estimate_served(observations: Sequence[Observation], *, seed: int = 0) -> Estimate | None:
    """Return what served answers were worth; None where nobody knows of any."""
    known = sorted(one.served for one in observations if one.served is not None)
    if not known:
        return None
    drawn = random.Random(seed)  # noqa: S311 - resampling
    means = [sum(drawn.choices(known, k=len(known))) / len(known) for _ in range(RESAMPLES)]
    return _estimate(sum(known) / len(known), list(means))


def propose_for_quality(
    curve: Sequence[CurvePoint], kept: float, *, certain_only: bool = False
) -> Proposal | None:
    """Return the highest threshold that keeps this part of the quality of all at the upper tier.

    ``certain_only``: the highest that does so by the low end of its interval.
    """
    best = curve[0].quality if curve else None
    if best is None:
        return None
    wanted = kept * best.value - _SLACK
    found = [
        point
        for point in curve
        if point.quality is not None
        and (point.quality.low if certain_only else point.quality.value) >= wanted
    ]
    if not found:
        return None
    point = max(found, key=lambda one: one.threshold)
    is_certain = point.quality is not None and point.quality.low >= wanted
    return Proposal(point, kept * best.value, is_certain)


def propose_for_share(curve: Sequence[CurvePoint], share: float) -> Proposal | None:
    """Return the lowest threshold with at most this share of requests at the upper tier."""
    found = [point for point in curve if point.large_share <= share + _SLACK]
    if not found:
        return None
    return Proposal(min(found, key=lambda one: one.threshold), share, is_certain=True)


def _place(one: Observation) -> tuple[float, ...]:
    """Return the observation as what can be put in order: -1 for what nobody knows."""
    return tuple(-1.0 if figure is None else float(figure) for figure in one)


def _choose_thresholds(samples: Sequence[float], in_effect: float | None) -> list[float]:
    """Return some of the scores, ascending, the least first, one above all, and what is in effect."""
    last = len(samples) - 1
    steps = min(POINTS, len(samples)) - 1
    chosen = {samples[round(last * step / steps)] for step in range(steps + 1)} if steps else set()
    also = set() if in_effect is None else {in_effect}
    return sorted({samples[0], *chosen, NOBODY, *also})


def _sum_cells(
    observations: Sequence[Observation],
    cells: Sequence[int],
    chosen: Sequence[int],
    width: int,
) -> _Sums:
    sums = [[0.0] * width for _ in range(5)]
    samples, lower, lower_known, upper, upper_known = sums
    for number in chosen:
        one, cell = observations[number], cells[number]
        samples[cell] += one.is_sample
        if one.lower is not None:
            lower[cell] += one.lower
            lower_known[cell] += 1
        if one.upper is not None:
            upper[cell] += one.upper
            upper_known[cell] += 1
    return _Sums(*(list(accumulate(column, initial=0.0)) for column in sums))


def _estimate(value: float | None, resampled: Sequence[float | None]) -> Estimate | None:
    if value is None:
        return None
    known = sorted(one for one in resampled if one is not None)
    if not known:
        return Estimate(value, value, value)
    last = len(known) - 1
    return Estimate(value, known[round(last * _LOW)], known[round(last * _HIGH)])


def _relative_cost(observations: Sequence[Observation], threshold: float) -> float | None:
    spent = dearest = 0.0
    for one in observations:
        if one.lower_cost is not None and one.upper_cost is not None:
            dearest += one.upper_cost
            spent += one.upper_cost if one.score >= threshold else one.lower_cost
    return spent / dearest if dearest else None
