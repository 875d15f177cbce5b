"""Judging a router on prompts that it has not seen, beside what it has to beat."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from routing.complexity.predictor import Predictor
from routing.learned.curve import (
    bootstrap,
    measure_apgr,
    measure_cpt,
    measure_entropy,
    sample_curve,
)
from routing.learned.judged_prompts import JudgedPrompt
from routing.learned.targets import make_targets

TIMES = 500
SEED = 20261130
_RANDOM_RUNS = 20


def evaluate(
    predictor: Predictor,
    rows: Sequence[JudgedPrompt],
    *,
    fitted_on: Sequence[JudgedPrompt] = (),
    times: int = TIMES,
) -> dict[str, Any]:
    """Return the report: one entry a dataset, or a dataset's pair of models where it has several.

    ``fitted_on``, if given, serves the look-up by category.
    """
    report: dict[str, Any] = {"weights": predictor.digest, "seed": SEED, "datasets": {}}
    found = sorted({(row.dataset, row.pair) for row in rows})
    for dataset, pair in found:
        has_one = sum(name == dataset for name, _ in found) == 1
        mine = [row for row in rows if (row.dataset, row.pair) == (dataset, pair)]
        trained = [row for row in fitted_on if (row.dataset, row.pair) == (dataset, pair)]
        name = dataset if has_one else f"{dataset} ({pair})"
        report["datasets"][name] = judge_dataset(predictor, mine, trained, times)
    return report


def judge_dataset(
    predictor: Predictor,
    rows: Sequence[JudgedPrompt],
    fitted_on: Sequence[JudgedPrompt],
    times: int,
) -> dict[str, Any]:
    """Judge one dataset; without a difference between the models there is nothing to rank."""
    predictions = [predictor.predict(row.prompt) for row in rows]
    spent_ms = [measure_milliseconds(predictor, row.prompt) for row in rows]
    targets = make_targets(rows)
    weak, strong = targets[:, 0], targets[:, 1]
    scores = np.array([one.score for one in predictions])
    found: dict[str, Any] = {
        "prompts": len(rows),
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
    if strong.sum() <= weak.sum():
        found["note"] = "the large model is not better here: PGR means nothing"
        return found
    rankings = {"classifier": scores, "length": np.array([float(len(row.prompt)) for row in rows])}
    if fitted_on:
        rankings["category_lookup"] = look_up_categories(fitted_on, rows)
    rankings["oracle"] = strong - weak
    for name, ranking in rankings.items():
        found["routers"][name] = {
            "apgr": measure_apgr(ranking, weak, strong),
            "cpt50": measure_cpt(ranking, weak, strong, 0.5),
            "cpt80": measure_cpt(ranking, weak, strong, 0.8),
            "intervals": bootstrap(ranking, weak, strong, times=times, seed=SEED),
            "curve": sample_curve(ranking, weak, strong),
        }
    found["routers"]["random"] = judge_random(weak, strong)
    return found


def judge_random(weak: Any, strong: Any) -> dict[str, Any]:
    """Return the mean over several random mixes; its curve is a straight line."""
    drawn = np.random.default_rng(SEED)
    rankings = [drawn.random(len(weak)) for _ in range(_RANDOM_RUNS)]
    return {
        "apgr": float(np.mean([measure_apgr(one, weak, strong) for one in rankings])),
        "cpt50": float(np.mean([measure_cpt(one, weak, strong, 0.5) for one in rankings])),
        "cpt80": float(np.mean([measure_cpt(one, weak, strong, 0.8) for one in rankings])),
        "curve": [[0.0, float(weak.mean())], [1.0, float(strong.mean())]],
    }


def look_up_categories(fitted_on: Sequence[JudgedPrompt], rows: Sequence[JudgedPrompt]) -> Any:
    """Return what the large model added on average in each prompt's category, in the training rows."""
    gains: dict[str, list[float]] = {}
    for row in fitted_on:
        gains.setdefault(row.category, []).append(row.strong_score - row.weak_score)
    every = float(np.mean([gain for some in gains.values() for gain in some]))
    means = {name: float(np.mean(some)) for name, some in gains.items()}
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
