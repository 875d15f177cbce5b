"""Judging a router on prompts that it has not seen, beside what it has to beat."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any

import numpy as np

from routing.complexity.predictor import Predictor
from routing.learned.curve import (
    bootstrap,
    is_large_better,
    measure_apgr,
    measure_cpt,
    measure_entropy,
    sample_curve,
)
from routing.learned.judged_prompts import JudgedPrompt, plain_text
from routing.learned.targets import make_targets

TIMES = 500
SEED = 20261130


def evaluate(
    predictor: Predictor,
    rows: Sequence[JudgedPrompt],
    *,
    fitted_on: Sequence[JudgedPrompt] = (),
    by_pair: Mapping[str, Predictor] | None = None,
    times: int = TIMES,
) -> dict[str, Any]:
    """Return the report: one entry a dataset, or a dataset's pair of models where it has several.

    ``fitted_on``, if given, serves the look-up by category. ``by_pair``: weights of their own for
    some pairs of models.
    """
    report: dict[str, Any] = {"weights": {}, "seed": SEED, "datasets": {}}
    found = sorted({(row.dataset, row.pair) for row in rows})
    for dataset, pair in found:
        has_one = sum(name == dataset for name, _ in found) == 1
        mine = [row for row in rows if (row.dataset, row.pair) == (dataset, pair)]
        trained = [row for row in fitted_on if (row.dataset, row.pair) == (dataset, pair)]
        name = dataset if has_one else f"{dataset} ({pair})"
        used = (by_pair or {}).get(pair, predictor)
        report["weights"][used.header.name] = used.digest
        report["datasets"][name] = judge_dataset(used, mine, trained, times)
        report["datasets"][name]["prompts_of_train"] = count_known(mine, fitted_on)
    return report


def count_known(rows: Sequence[JudgedPrompt], trained: Sequence[JudgedPrompt]) -> int:
    """Return how many rows weights may have seen: rows of train, and the same texts and questions."""
    texts = {plain_text(row.prompt) for row in trained}
    stems = {row.stem for row in trained}
    return sum(
        row.split == "train" or row.stem in stems or plain_text(row.prompt) in texts for row in rows
    )


def judge_dataset(
    predictor: Predictor,
    rows: Sequence[JudgedPrompt],
    fitted_on: Sequence[JudgedPrompt],
    times: int,
) -> dict[str, Any]:
    """Judge one dataset; without a difference between the models there is nothing to rank.

    The order of the rows does not matter, down to the last digit.
    """
    rows = sorted(rows, key=_place)
    predictions = [predictor.predict(row.prompt) for row in rows]
    spent_ms = [measure_milliseconds(predictor, row.prompt) for row in rows]
    targets = make_targets(rows)
    weak, strong = targets[:, 0], targets[:, 1]
    scores = np.array([one.score for one in predictions])
    found: dict[str, Any] = {
        "prompts": len(rows),
        "weights": {
            "name": predictor.header.name,
            "sha256": predictor.digest,
            "learned_from": sorted({group.name for group in predictor.header.groups}),
        },
        "in_domain_share": float(np.mean([one.is_in_domain for one in predictions])),
        "fixed_models": {"small": float(weak.mean()), "large": float(strong.mean())},
        "oracle_quality": float(np.maximum(weak, strong).mean()),
        "entropy": measure_entropy(scores),
        "brier": {
            "small": float(
                np.mean((np.array([one.small_suffices for one in predictions]) - weak) ** 2)
            ),
            "large": float(
                np.mean((np.array([one.large_suffices for one in predictions]) - strong) ** 2)
            ),
        },
        "milliseconds": {
            "p50": float(np.percentile(spent_ms, 50)),
            "p99": float(np.percentile(spent_ms, 99)),
        },
        "routers": {},
    }
    if not is_large_better(weak, strong):
        found["note"] = "the large model is not better here: PGR means nothing"
        return found
    rankings = {"classifier": scores, "length": np.array([float(len(row.prompt)) for row in rows])}
    if fitted_on:
        rankings["category_lookup"] = look_up_categories(fitted_on, rows)
    rankings["oracle"] = strong - weak
    rankings["random"] = np.zeros(len(rows))
    for name, ranking in rankings.items():
        found["routers"][name] = {
            "apgr": measure_apgr(ranking, weak, strong),
            "cpt50": measure_cpt(ranking, weak, strong, 0.5),
            "cpt80": measure_cpt(ranking, weak, strong, 0.8),
            "intervals": bootstrap(ranking, weak, strong, times=times, seed=SEED),
            "curve": sample_curve(ranking, weak, strong),
        }
    return found


def _place(row: JudgedPrompt) -> tuple[str, str, float, float]:
    return row.prompt, row.category, row.weak_score, row.strong_score


def look_up_categories(fitted_on: Sequence[JudgedPrompt], rows: Sequence[JudgedPrompt]) -> Any:
    """Return what the large model added on average in each prompt's category, in the training rows."""
    gains: dict[str, list[float]] = {}
    for row in fitted_on:
        gains.setdefault(row.category, []).append(row.strong_score - row.weak_score)
    # Exact sums: rounding in the rows' order would part categories that are equal.
    every = fsum(gain for some in gains.values() for gain in some) / len(fitted_on)
    means = {name: fsum(some) / len(some) for name, some in gains.items()}
    return np.array([means.get(row.category, every) for row in rows])


def measure_milliseconds(predictor: Predictor, prompt: str) -> float:
    """Return this thread's CPU time for one prediction, the better of two runs."""
    spent = []
    for _ in range(2):
        begun = time.thread_time_ns()
        predictor.predict(prompt)
        spent.append(time.thread_time_ns() - begun)
    return min(spent) / 1e6


def measure_latency(predictor: Predictor, prompts: Sequence[str], calls: int) -> dict[str, float]:
    """Return percentiles of single calls' CPU time in milliseconds, over the prompts in turn."""
    if not prompts:
        return {}
    spent = []
    for number in range(calls):
        begun = time.thread_time_ns()
        predictor.predict(prompts[number % len(prompts)])
        spent.append((time.thread_time_ns() - begun) / 1e6)
    return {f"p{part}": round(float(np.percentile(spent, part)), 4) for part in (50, 99)}
