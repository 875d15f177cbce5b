"""A threshold that meets a target, from judged prompts that were not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from routing.complexity.predictor import Predictor
from routing.learned.curve import find_recovery, is_large_better
from routing.learned.judged_prompts import JudgedPrompt
from routing.learned.target_error import TargetError
from routing.learned.targets import make_targets


@dataclass(frozen=True, slots=True)
class Target:
    """One of three: the share of calls to the large model, the mean cost, or the share of its quality.

    ``cost`` is relative to all calls to the large model, ``times_dearer`` is large to small.
    """

    large_share: float | None = None
    cost: float | None = None
    quality: float | None = None
    times_dearer: float = 100.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """Prompts whose score is at least ``threshold`` go to the large model. Shares are within 0..1."""

    threshold: float
    large_share: float
    relative_cost: float
    quality: float
    quality_kept: float
    recovered: float
    prompts: int


def calibrate(predictor: Predictor, rows: Sequence[JudgedPrompt], target: Target) -> Calibration:
    """Find the threshold.

    Raises:
        TargetError: not exactly one target, or one that cannot be met.
    """
    targets = make_targets(rows)
    scores = np.array([predictor.predict(row.prompt).score for row in rows])
    return choose_threshold(scores, targets[:, 0], targets[:, 1], target)


def choose_threshold(scores: Any, weak: Any, strong: Any, target: Target) -> Calibration:
    """Find the threshold from scores. Equal scores are routed alike, so shares move in steps.

    Raises:
        TargetError: not exactly one target, or one that cannot be met.
    """
    if sum(one is not None for one in (target.large_share, target.cost, target.quality)) != 1:
        raise TargetError("give one target: a share of large calls, a cost, or a quality")
    if not 1 < target.times_dearer < inf:
        raise TargetError("the large model has to cost more than the small one")
    if not is_large_better(weak, strong):
        raise TargetError(
            "the large model is not better on these prompts: send all to the small one"
        )
    order = np.sort(scores)[::-1]
    # Where a threshold can stand: before the first score, and after the last of equal ones.
    ends = np.concatenate([[0], np.flatnonzero(np.diff(order)) + 1, [len(order)]])
    recovery = find_recovery(scores, weak, strong)[ends]
    shares = ends / len(order)
    costs = shares + (1 - shares) / target.times_dearer
    qualities = weak.mean() + recovery * (strong.mean() - weak.mean())
    if target.quality is not None:
        meets = np.flatnonzero(qualities >= target.quality * strong.mean() - 1e-12)
        place = int(meets[0]) if len(meets) else None
    elif target.large_share is not None:
        place = _find_last(shares <= target.large_share + 1e-12)
    else:
        place = _find_last(costs <= (target.cost or 0.0) + 1e-12)
    if place is None:
        raise TargetError("no threshold meets this target")
    threshold = (
        float(order[ends[place] - 1]) if ends[place] else float(np.nextafter(order[0], np.inf))
    )
    return Calibration(
        threshold=threshold,
        large_share=float(shares[place]),
        relative_cost=float(costs[place]),
        quality=float(qualities[place]),
        quality_kept=float(qualities[place] / strong.mean()),
        recovered=float(recovery[place]),
        prompts=len(scores),
    )


def _find_last(meets: Any) -> int | None:
    places = np.flatnonzero(meets)
    return int(places[-1]) if len(places) else None
