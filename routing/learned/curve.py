"""The cost-quality curve of a router and its summaries: PGR, APGR, CPT, with bootstrap intervals.

Definitions as RouteLLM's: PGR = (quality - weak) / (strong - weak); APGR is its mean over the share of
strong calls from 0 to 1; CPT(x) is the least share, in percent, that reaches PGR x. Random is 0.5.

Among equal scores a router has no order: they count as drawn at random, and no figure depends on the
order that rows come in. A constant is the random mix.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_POINTS = 101
_ROUNDING = 1e-9  # sums of marks that are equal differ by less


def is_large_better(weak: Any, strong: Any) -> bool:
    """Say whether there is anything to recover: without it PGR means nothing."""
    return bool((np.asarray(strong) - np.asarray(weak)).sum() > _ROUNDING)


def find_recovery(scores: Any, weak: Any, strong: Any) -> Any:
    """Return the PGR after 0, 1, … n strong calls, the highest scores first.

    Among equal scores it is the mean over all their orders, which is a straight line.
    """
    scores = np.asarray(scores, dtype=np.float64)
    gains = np.asarray(strong, dtype=np.float64) - np.asarray(weak, dtype=np.float64)
    # Gains order equal scores, so that sums round alike whatever order the rows come in.
    order = np.lexsort((gains, -scores))
    sums = np.concatenate([[0.0], np.cumsum(gains[order])])
    ends = np.concatenate([[0], np.flatnonzero(np.diff(scores[order])) + 1, [len(scores)]])
    return np.interp(np.arange(len(sums)), ends, sums[ends] / sums[-1])


def measure_apgr(scores: Any, weak: Any, strong: Any) -> float:
    """Return the area under the recovery curve (trapezoids)."""
    recovery = find_recovery(scores, weak, strong)
    return float((recovery[:-1] + recovery[1:]).sum() / 2 / (len(recovery) - 1))


def measure_cpt(scores: Any, weak: Any, strong: Any, target: float) -> float:
    """Return CPT in percent for a target PGR within 0..1."""
    recovery = find_recovery(scores, weak, strong)
    return float(100 * np.argmax(recovery >= target - 1e-12) / (len(recovery) - 1))


def bootstrap(
    scores: Any, weak: Any, strong: Any, *, times: int, seed: int
) -> dict[str, list[float]]:
    """Return 95 % intervals of APGR, CPT50 and CPT80 over resampled prompts."""
    drawn = np.random.default_rng(seed)
    scores, weak, strong = order_rows(scores, weak, strong)
    found: list[tuple[float, float, float]] = []
    for _ in range(times):
        chosen = drawn.integers(0, len(scores), len(scores))
        sample = scores[chosen], weak[chosen], strong[chosen]
        if is_large_better(*sample[1:]):
            cpts = (measure_cpt(*sample, target) for target in (0.5, 0.8))
            found.append((measure_apgr(*sample), *cpts))  # type: ignore[arg-type]
    if not found:
        return {}
    bounds = np.percentile(np.array(found), [2.5, 97.5], axis=0)
    names = ("apgr", "cpt50", "cpt80")
    return {name: [float(low), float(high)] for name, low, high in zip(names, *bounds, strict=True)}


def order_rows(*columns: Any) -> list[Any]:
    """Return the columns with their rows in one order, so that a seed draws the same rows of any."""
    arrays = [np.asarray(column) for column in columns]
    order = np.lexsort(arrays)
    return [column[order] for column in arrays]


def sample_curve(scores: Any, weak: Any, strong: Any) -> list[list[float]]:
    """Return the curve as (share of strong calls, quality) at 101 shares."""
    recovery = find_recovery(scores, weak, strong)
    places = np.linspace(0, len(recovery) - 1, _POINTS).round().astype(int)
    low, high = float(np.mean(weak)), float(np.mean(strong))
    return [
        [float(place / (len(recovery) - 1)), float(low + recovery[place] * (high - low))]
        for place in places
    ]


def measure_entropy(scores: Any, bins: int = 20) -> float:
    """Return how evenly scores spread over equal parts of their own 0.5..99.5 % range, 0 (a constant)..1."""
    scores = np.asarray(scores, dtype=np.float64)
    low, high = np.percentile(scores, [0.5, 99.5])
    if high <= low:
        return 0.0
    counts, _ = np.histogram(scores.clip(low, high), bins=bins, range=(low, high))
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum() / np.log(bins))
