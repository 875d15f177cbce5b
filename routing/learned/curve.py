"""The cost-quality curve of a router and its summaries: PGR, APGR, CPT, with bootstrap intervals.

Definitions as RouteLLM's: PGR = (quality - weak) / (strong - weak); APGR is its mean over the share of
strong calls from 0 to 1; CPT(x) is the least share, in percent, that reaches PGR x. Random is 0.5.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_POINTS = 101


def find_recovery(scores: Any, weak: Any, strong: Any) -> Any:
    """Return the PGR after 0, 1, … n strong calls, the highest scores first; ties in the order given."""
    order = np.argsort(-np.asarray(scores, dtype=np.float64), kind="stable")
    gains = (np.asarray(strong) - np.asarray(weak))[order]
    return np.concatenate([[0.0], np.cumsum(gains) / gains.sum()])


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
    scores, weak, strong = map(np.asarray, (scores, weak, strong))
    found: list[tuple[float, float, float]] = []
    for _ in range(times):
        chosen = drawn.integers(0, len(scores), len(scores))
        sample = scores[chosen], weak[chosen], strong[chosen]
        if sample[2].sum() > sample[1].sum():
            cpts = (measure_cpt(*sample, target) for target in (0.5, 0.8))
            found.append((measure_apgr(*sample), *cpts))  # type: ignore[arg-type]
    if not found:
        return {}
    bounds = np.percentile(np.array(found), [2.5, 97.5], axis=0)
    names = ("apgr", "cpt50", "cpt80")
    return {name: [float(low), float(high)] for name, low, high in zip(names, *bounds, strict=True)}


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
