"""The weights of a cascade and where it keeps an answer, from answers whose beginnings were judged.

A ridge logistic regression by Newton's method, in plain Python: four weights need no more. A figure
whose weight comes out with the wrong sign (a likelier beginning would count against the answer) says
nothing that can be relied on, and is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import exp, isfinite, log
from pathlib import Path
from typing import Any, NamedTuple

from routing.complexity.confidence import LOWEST_LOGPROB, Beginning, measure_confidence
from routing.learned.judged_prompts import DataError, read_rows
from routing.learned.target_error import TargetError

MIN_ROWS = 40
MIN_OF_EACH = 5  # good ones, and others
FOLDS = 5
PENALTY = 1.0
_STEPS = 50
_SIGNS = (0, 1, 1, -1)  # that a weight may have; 0: either
_GOOD = {"1": True, "true": True, "0": False, "false": False}


class Weights(NamedTuple):
    """As ``gateway.snapshot.model.CascadeWeights``."""

    bias: float
    mean_logprob: float
    min_logprob: float
    prompt_score: float


@dataclass(frozen=True, slots=True)
class JudgedBeginning:
    """The beginning of a small model's answer, its prompt's score, and whether the answer was good."""

    beginning: Beginning
    prompt_score: float
    is_good: bool

    @property
    def figures(self) -> tuple[float, float, float, float]:
        """What the weights are for."""
        return (1.0, *self.beginning, self.prompt_score)


@dataclass(frozen=True, slots=True)
class CascadeCalibration:
    """Weights of all rows; all else is of rows that were held out of the weights that judged them."""

    weights: Weights
    keep_at: float
    share_kept: float
    quality_kept: float  # share of good answers among those that are kept
    quality_of_all: float
    ranking: float  # that a good answer is surer than another: 0.5 is chance, 1 is always
    log_loss: float
    log_loss_of_share: float  # of saying for each answer how many are good
    rows: int

    @property
    def has_learned(self) -> bool:
        """Whether an answer's beginning says more of it than how many are good."""
        return self.ranking > 0.5 and self.log_loss < self.log_loss_of_share


def read_judged_beginnings(path: Path) -> list[JudgedBeginning]:
    """Read a file of the documented format.

    Raises:
        DataError: unknown ending, damage, a figure that is none, or no rows.
        OSError: it cannot be read.
    """
    rows = [_read_row(row, number) for number, row in enumerate(read_rows(path), 1)]
    if not rows:
        raise DataError(f"{path.name} has no rows")
    return rows


def calibrate_cascade(
    rows: Sequence[JudgedBeginning],
    *,
    share_kept: float | None = None,
    quality: float | None = None,
    penalty: float = PENALTY,
) -> CascadeCalibration:
    """Return weights, and the lowest confidence to keep an answer from.

    ``share_kept``: at least this share is kept, of the surest. ``quality``: of what is kept at least
    this share is good, and as much as can be is kept. Raises :class:`TargetError` unless exactly one is
    given and can be met, and :class:`DataError` for too few rows.
    """
    if (share_kept is None) == (quality is None):
        raise TargetError("give one target: the share that is kept, or its quality")
    good = sum(row.is_good for row in rows)
    if len(rows) < MIN_ROWS or min(good, len(rows) - good) < MIN_OF_EACH:
        raise DataError(
            f"{len(rows)} rows, {good} of them good: {MIN_ROWS} are needed, {MIN_OF_EACH} of each"
        )
    # In one order, so that folds and sums are the same whatever order the file has.
    rows = sorted(rows, key=lambda row: (row.figures, row.is_good))
    judged = _judge_held_out(rows, penalty)
    kept = _count_kept(judged, share_kept, quality)
    keep_at = judged[kept - 1][0]
    share = good / len(rows)
    return CascadeCalibration(
        weights=fit_weights(rows, penalty),
        keep_at=keep_at,
        share_kept=kept / len(rows),
        quality_kept=sum(is_good for _, is_good in judged[:kept]) / kept,
        quality_of_all=share,
        ranking=_rank(judged),
        log_loss=_mean_loss(judged),
        log_loss_of_share=_mean_loss([(share, is_good) for _, is_good in judged]),
        rows=len(rows),
    )


def fit_weights(rows: Sequence[JudgedBeginning], penalty: float = PENALTY) -> Weights:
    """Return the weights that fit, each of a sign that makes sense or 0."""
    figures = [row.figures for row in rows]
    targets = [float(row.is_good) for row in rows]
    used = [0, 1, 2, 3]
    while True:
        fitted = _fit([[one[place] for place in used] for one in figures], targets, penalty)
        weights = dict(zip(used, fitted, strict=True))
        wrong = [place for place in used if weights[place] * _SIGNS[place] < 0]
        if not wrong:
            return Weights(*(weights.get(place, 0.0) for place in range(4)))
        used.remove(max(wrong, key=lambda place: abs(weights[place])))


def _fit(figures: list[list[float]], targets: list[float], penalty: float) -> list[float]:
    """Return what minimises the log loss and the penalty, which is not on the bias (the first)."""
    size = len(figures[0])
    ridge = [0.0] + [penalty] * (size - 1)
    weights = [0.0] * size
    loss = _loss(figures, targets, weights, ridge)
    for _ in range(_STEPS):
        slope = [ridge[i] * weights[i] for i in range(size)]
        curve = [[ridge[i] if i == j else 0.0 for j in range(size)] for i in range(size)]
        for one, target in zip(figures, targets, strict=True):
            chance = _logistic(_dot(one, weights))
            spread = max(chance * (1.0 - chance), 1e-12)
            for i in range(size):
                slope[i] += (chance - target) * one[i]
                for j in range(size):
                    curve[i][j] += spread * one[i] * one[j]
        step, scale = _solve(curve, slope), 1.0
        while scale > 1e-6:  # a whole step may go too far
            tried = [weight - scale * part for weight, part in zip(weights, step, strict=True)]
            found = _loss(figures, targets, tried, ridge)
            if found <= loss:
                break
            scale /= 2
        else:
            return weights
        weights, gained, loss = tried, loss - found, found
        if gained < 1e-10 * max(loss, 1.0):
            return weights
    return weights


def _judge_held_out(rows: Sequence[JudgedBeginning], penalty: float) -> list[tuple[float, bool]]:
    """Return each row's confidence by weights that have not seen it, the surest first."""
    judged: list[tuple[float, bool]] = []
    for fold in range(FOLDS):
        weights = fit_weights([row for i, row in enumerate(rows) if i % FOLDS != fold], penalty)
        judged += [
            (measure_confidence(weights, row.beginning, row.prompt_score), row.is_good)
            for row in rows[fold::FOLDS]
        ]
    return sorted(judged, reverse=True)


def _count_kept(
    judged: Sequence[tuple[float, bool]], share: float | None, quality: float | None
) -> int:
    """Return how many of the surest are kept, 1 at least; equal confidences go together."""
    last = len(judged)
    ends = [place for place in range(1, last) if judged[place][0] < judged[place - 1][0]] + [last]
    if share is not None:
        if not 0 < share <= 1:
            raise TargetError("a share is above 0 and at most 1")
        return next(place for place in ends if place >= share * last - 1e-9)
    good = list(accumulate(is_good for _, is_good in judged))
    best = max((end for end in ends if good[end - 1] >= (quality or 0.0) * end), default=0)
    if not best:
        raise TargetError(f"no confidence keeps answers of which {quality:g} are good")
    return best


def _rank(judged: Sequence[tuple[float, bool]]) -> float:
    """Return the area under the ROC curve; equal confidences count half."""
    below: dict[float, list[int]] = {}
    for confidence, is_good in judged:
        below.setdefault(confidence, [0, 0])[is_good] += 1
    wins, bad = 0.0, 0
    for confidence in sorted(below):
        others, good = below[confidence]
        wins += good * (bad + others / 2)
        bad += others
    return wins / (bad * (len(judged) - bad))


def _mean_loss(judged: Sequence[tuple[float, bool]]) -> float:
    return -sum(log(max(p if is_good else 1 - p, 1e-12)) for p, is_good in judged) / len(judged)


def _loss(
    figures: list[list[float]], targets: list[float], weights: list[float], ridge: list[float]
) -> float:
    total = sum(part * weight * weight / 2 for part, weight in zip(ridge, weights, strict=True))
    for one, target in zip(figures, targets, strict=True):
        signed = _dot(one, weights) * (1.0 if target else -1.0)
        total += log(1.0 + exp(-signed)) if signed > -30 else -signed
    return total


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve a small positive definite system by elimination."""
    size = len(right)
    rows = [[*matrix[i], right[i]] for i in range(size)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(i + 1, size):
            factor = rows[k][i] / (rows[i][i] or 1e-12)
            rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        known = sum(rows[i][j] * found[j] for j in range(i + 1, size))
        found[i] = (rows[i][size] - known) / (rows[i][i] or 1e-12)
    return found


def _logistic(value: float) -> float:
    return 1.0 / (1.0 + exp(-min(max(value, -40.0), 40.0)))


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _read_row(row: dict[str, Any], number: int) -> JudgedBeginning:
    told = str(row.get("good")).strip().lower()
    is_good = _GOOD.get(told.removesuffix(".0"))
    if is_good is None:
        raise DataError(f"row {number}: good is 0 or 1, not {told!r}")
    mean, low = (_read_number(row, name, number) for name in ("mean_logprob", "min_logprob"))
    if mean > 0 or low > mean + 1e-9:
        raise DataError(f"row {number}: min_logprob is at most mean_logprob, and that at most 0")
    score = 0.0
    if row.get("prompt_score") not in (None, ""):
        score = _read_number(row, "prompt_score", number)
    bounded = Beginning(max(mean, LOWEST_LOGPROB), max(low, LOWEST_LOGPROB))
    return JudgedBeginning(bounded, score, is_good)


def _read_number(row: dict[str, Any], name: str, number: int) -> float:
    try:
        value = float(row.get(name, ""))
    except (TypeError, ValueError, OverflowError):
        value = float("nan")
    if not isfinite(value):
        raise DataError(f"row {number}: {name} is no number")
    return value
