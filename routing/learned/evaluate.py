"""Judging a router on prompts that it has not seen, beside what it has to beat."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
# Of fewer prompts an APGR moves by more than what parts a good router from a random mix.
FEWEST_ALONE = 100


def evaluate(
    predictor: Predictor,
    rows: Sequence[JudgedPrompt],
    *,
    fitted_on: Sequence[JudgedPrompt] = (),
    by_pair: Mapping[str, Predictor] | None = None,
    times: int = TIMES,
) -> dict[str, Any]:
    """Return the report: one entry a dataset, or a dataset's pair of models where it has several.

    Those of a pair with few prompts, two or more, are judged together as well: an entry of
    ``together``, whose ``datasets`` names theirs. ``fitted_on``, if given, serves the look-up by
    category. ``by_pair``: weights of their own for some pairs of models.
    """
    report: dict[str, Any] = {"weights": {}, "seed": SEED, "datasets": {}, "together": {}}
    mine, trained = _part(rows), _part(fitted_on)
    pairs_of = Counter(dataset for dataset, _ in mine)
    small: dict[str, dict[str, str]] = {}

    def judge(pair: str, datasets: Iterable[str]) -> dict[str, Any]:
        chosen = [row for dataset in datasets for row in mine[dataset, pair]]
        known = [row for dataset in datasets for row in trained.get((dataset, pair), ())]
        used = (by_pair or {}).get(pair, predictor)
        report["weights"][used.header.name] = used.digest
        entry = judge_dataset(used, chosen, known, times)
        return {**entry, "prompts_of_train": count_known(chosen, fitted_on)}

    for dataset, pair in sorted(mine):
        name = dataset if pairs_of[dataset] == 1 else f"{dataset} ({pair})"
        report["datasets"][name] = judge(pair, [dataset])
        if len(mine[dataset, pair]) < FEWEST_ALONE:
            small.setdefault(pair, {})[dataset] = name
    small = {pair: names for pair, names in small.items() if len(names) > 1}
    for pair, names in small.items():
        name = f"{len(names)} small datasets" + (f" ({pair})" if len(small) > 1 else "")
        report["together"][name] = {**judge(pair, names), "datasets": [*names.values()]}
    return report


def _part(rows: Sequence[JudgedPrompt]) -> dict[tuple[str, str], list[JudgedPrompt]]:
    """Return the rows by dataset and pair of models."""
    parts: dict[tuple[str, str], list[JudgedPrompt]] = {}
    for row in rows:
        parts.setdefault((row.dataset, row.pair), []).append(row)
    return parts


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
    """Judge one dataset, or several as one; where the large model is not better there is nothing to rank.

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


def _place(row: JudgedPrompt) -> tuple[str, str, str, float, float]:
    return row.prompt, row.dataset, row.category, row.weak_score, row.strong_score


def look_up_categories(fitted_on: Sequence[JudgedPrompt], rows: Sequence[JudgedPrompt]) -> Any:
    """Return what the large model added on average in each prompt's category, in the training rows.

    Two datasets' categories of one name are two.
    """
    most: dict[str, float] = {}  # of a dataset with marks to 10, 10
    gains: dict[tuple[str, str], list[float]] = {}
    for row in fitted_on:
        is_mark = max(row.weak_score, row.strong_score) > 1
        most[row.dataset] = 10.0 if is_mark else most.get(row.dataset, 1.0)
        gains.setdefault((row.dataset, row.category), []).append(row.strong_score - row.weak_score)
    # Exact sums: rounding in the rows' order would part categories that are equal.
    means = {key: fsum(some) / len(some) / most[key[0]] for key, some in gains.items()}
    every = fsum(means[key] * len(some) for key, some in gains.items()) / len(fitted_on)
    return np.array([means.get((row.dataset, row.category), every) for row in rows])


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
