"""Training the prompt classifier: two logistic heads over hashed words, pairs and figures, in torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from routing.complexity.features import Features, extract
from routing.complexity.predictor import CLIP
from routing.learned.curve import is_large_better, measure_apgr
from routing.learned.judged_prompts import FOLDS, JudgedPrompt, fold_of, group_questions
from routing.learned.word_sums import WordSums

PENALTIES = (10.0, 30.0, 100.0)
_FIGURE_PENALTY = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How to train. ``penalties`` are tried on held-out folds of the training rows only."""

    bits: int = 17
    fewest_prompts: int = 2  # a bucket seen in fewer training prompts weighs nothing
    penalties: tuple[float, ...] = PENALTIES
    folds: int = FOLDS  # so many are held out in turn
    iterations: int = 40
    seed: int = 20261130


@dataclass(frozen=True, slots=True)
class Encoded:
    """Prompts as the trainer sees them: buckets one after the other, and where each prompt's begin."""

    buckets: Any
    offsets: Any
    sizes: Any
    figures: Any


@dataclass(frozen=True, slots=True)
class Trained:
    """One part's weights in float. ``table`` is (buckets, 2), ``figure_weights`` (figures, 2)."""

    table: Any
    figure_weights: Any
    biases: Any


@dataclass(frozen=True, slots=True)
class Scale:
    """How figures are standardised, the same for all parts: from all training rows."""

    means: Any
    deviations: Any

    def apply(self, figures: Any, most: float = CLIP) -> Any:
        """Return figures in standard deviations, ``most`` at the most; by default as they weigh."""
        return ((figures - self.means) / self.deviations).clip(-most, most)


def measure_scale(encoded: Encoded) -> Scale:
    """Return means and deviations of the figures."""
    return Scale(encoded.figures.mean(0), encoded.figures.std(0) + 1e-6)


def encode(features: Sequence[Features], bits: int) -> Encoded:
    """Bring features into arrays. A bucket hit by two words of a prompt counts twice, as at run time."""
    mask = (1 << bits) - 1
    lists = [[hashed & mask for hashed in one.terms] for one in features]
    sizes = np.array([len(one) for one in lists], dtype=np.int64)
    buckets = np.fromiter((bucket for one in lists for bucket in one), dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return Encoded(buckets, offsets, sizes, np.array([one.figures for one in features]))


def take(encoded: Encoded, chosen: Any) -> Encoded:
    """Return some of the prompts, by index."""
    starts, sizes = encoded.offsets[chosen], encoded.sizes[chosen]
    parts = [
        encoded.buckets[start : start + size] for start, size in zip(starts, sizes, strict=True)
    ]
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return Encoded(np.concatenate(parts), offsets, sizes, encoded.figures[chosen])


def fit(encoded: Encoded, targets: Any, scale: Scale, penalty: float, plan: Plan) -> Trained:
    """Fit both heads; convex and begun at 0, so that the seed does not matter."""
    torch.manual_seed(plan.seed)
    figures = torch.tensor(scale.apply(encoded.figures), dtype=torch.float32)
    rows = len(encoded.sizes)
    seen = np.bincount(encoded.buckets, minlength=1 << plan.bits)
    rarity = np.where(seen >= plan.fewest_prompts, np.log((1 + rows) / (1 + seen)).clip(0) + 1, 0.0)
    shares = np.repeat(1 / np.sqrt(encoded.sizes.clip(1)), encoded.sizes)
    # Only buckets that may weigh something take part.
    used = np.flatnonzero(rarity)
    sums = WordSums(encoded.buckets, encoded.sizes, rarity[encoded.buckets] * shares, used)
    wanted = torch.tensor(targets, dtype=torch.float32)
    table = torch.zeros((len(used), 2))
    slopes = torch.zeros((figures.shape[1], 2))
    biases = torch.zeros(2)
    optimizer = torch.optim.LBFGS(
        [table, slopes, biases],
        max_iter=plan.iterations,
        history_size=8,
        line_search_fn="strong_wolfe",
        tolerance_change=1e-7,
    )

    def step() -> Any:
        logits = sums(table) + figures @ slopes + biases
        loss = binary_cross_entropy_with_logits(logits, wanted, reduction="sum")
        off = logits.sigmoid() - wanted
        table.grad = sums.find_gradient(off) + penalty * table
        slopes.grad = figures.T @ off + _FIGURE_PENALTY * slopes
        biases.grad = off.sum(0)
        loss = loss + 0.5 * penalty * table.square().sum()
        return loss + 0.5 * _FIGURE_PENALTY * slopes.square().sum()

    optimizer.step(step)  # nothing is recorded: the gradients are the step's own
    weighed = np.zeros((1 << plan.bits, 2), dtype=np.float32)
    weighed[used] = table.detach().numpy() * rarity[used, None]
    return Trained(weighed, slopes.detach().numpy(), biases.detach().numpy())


def predict(trained: Trained, encoded: Encoded, scale: Scale) -> Any:
    """Return P(small suffices) and P(large suffices) for each prompt, as (prompts, 2)."""
    values = trained.table[encoded.buckets]
    bounds = np.concatenate([np.zeros((1, 2)), np.cumsum(values, axis=0, dtype=np.float64)])
    sums = bounds[encoded.offsets + encoded.sizes] - bounds[encoded.offsets]
    figures = scale.apply(encoded.figures) @ trained.figure_weights
    logits = sums / np.sqrt(encoded.sizes.clip(1))[:, None] + figures
    return 1 / (1 + np.exp(-(logits + trained.biases).clip(-30, 30)))


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What was found on held-out folds. ``predictions`` are NaN for rows that were never held out."""

    penalty: float
    apgr: dict[str, float]  # by source
    predictions: Any


def choose_penalty(
    rows: Sequence[JudgedPrompt],
    sources: Sequence[str],
    encoded: Encoded,
    targets: Any,
    *,
    plan: Plan,
    say: Callable[[str], None],
) -> HeldOut:
    """Try the penalties on held-out folds of these rows; return the best by the mean APGR of all prompts.

    ``sources`` names for each row what it is judged together with.
    """
    folds = np.array([fold_of(question) for question in group_questions(rows)])
    names = np.array(sources)
    tried: list[tuple[float, HeldOut]] = []
    for penalty in plan.penalties:
        held = np.full((len(rows), 2), np.nan)
        for fold in range(min(plan.folds, FOLDS)):
            out = np.flatnonzero(folds == fold)
            kept = np.flatnonzero(folds != fold)
            if len(out) and len(kept):
                learning = take(encoded, kept)
                scale = measure_scale(learning)
                trained = fit(learning, targets[kept], scale, penalty, plan)
                held[out] = predict(trained, take(encoded, out), scale)
        found: dict[str, float] = {}
        counts: list[int] = []
        for name in sorted(set(sources)):
            mine = np.flatnonzero((names == name) & ~np.isnan(held[:, 0]))
            weak, strong = targets[mine, 0], targets[mine, 1]
            if is_large_better(weak, strong):
                found[name] = measure_apgr(held[mine, 1] - held[mine, 0], weak, strong)
                counts.append(len(mine))
        mean = float(np.average(list(found.values()), weights=counts)) if found else 0.0
        say(f"penalty {penalty:g}: held-out APGR {describe(found)}")
        tried.append((mean, HeldOut(penalty, found, held)))
    return max(tried, key=lambda one: one[0])[1]  # the first of equals


def describe(figures: dict[str, float]) -> str:
    """Return figures by dataset for a line of progress."""
    return ", ".join(f"{name} {figure:.3f}" for name, figure in figures.items()) or "none"


def extract_all(rows: Sequence[JudgedPrompt]) -> list[Features]:
    """Return the features of each prompt."""
    return [extract(row.prompt) for row in rows]
