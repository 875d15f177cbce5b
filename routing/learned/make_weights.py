"""From judged prompts to weights: choose on held-out folds, leave out what was not learned, fit, pack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from routing.complexity.predictor import decode_weights
from routing.learned.curve import measure_apgr
from routing.learned.export import pack
from routing.learned.judged_prompts import DataError, JudgedPrompt
from routing.learned.targets import make_targets
from routing.learned.train import (
    Plan,
    choose_penalty,
    encode,
    extract_all,
    fit,
    predict,
    take,
)


@dataclass(frozen=True, slots=True)
class Made:
    """Weights as they go into a file, and what was decided on the way, plain for JSON."""

    data: bytes
    summary: dict[str, Any]


def make_weights(
    rows: Sequence[JudgedPrompt], *, name: str, plan: Plan, say: Callable[[str], None]
) -> Made:
    """Train on the rows whose split is train; no other row is looked at.

    A dataset on whose held-out folds the classifier ranks no better than the prompts' length is left
    out: its prompts are then out of domain, unless they look like another's.

    Raises:
        DataError: no training rows, or the large model is nowhere better.
    """
    rows = [row for row in rows if row.split == "train"]
    if not rows:
        raise DataError("no row is of the split train")
    encoded, targets = encode(extract_all(rows), plan.bits), make_targets(rows)
    datasets = np.array([row.dataset for row in rows])
    say(f"{len(rows)} prompts of {', '.join(sorted(set(datasets.tolist())))}")
    penalty, apgr, held = choose_penalty(rows, encoded, targets, plan, say)
    if not apgr:
        raise DataError("the large model is better in none of the datasets")
    length = measure_length(datasets, encoded.figures[:, 0], targets, held)
    learned = [one for one in apgr if apgr[one] > max(length[one], 0.5)]
    kept = np.flatnonzero(np.isin(datasets, learned)) if learned else np.arange(len(rows))
    say(
        f"penalty {penalty:g}; length's held-out APGR {length}; learned from: {learned or 'nothing'}"
    )
    chosen, aims = take(encoded, kept), targets[kept]
    trained = fit(chosen, aims, penalty, plan)
    shares = predict(trained, chosen)
    summary: dict[str, Any] = {
        "plan": asdict(plan),
        "prompts": len(kept),
        "penalty": penalty,
        "held_out_apgr": apgr,
        "held_out_apgr_of_length": length,
        "learned_from": learned,
        "torch": torch.__version__,
    }
    data = pack(
        trained,
        name=name,
        figures=chosen.figures,
        # Nothing learned: no prompt is in domain, and length decides everywhere.
        datasets=datasets[kept].tolist() if learned else [],
        targets=aims,
        scores=shares[:, 1] - shares[:, 0],
        made_from={"prompts": len(kept), "penalty": penalty, "seed": plan.seed},
    )
    summary["sha256"] = decode_weights(data).digest
    return Made(data, summary)


def measure_length(datasets: Any, lengths: Any, targets: Any, held: Any) -> dict[str, float]:
    """Return the length rule's APGR on the same held-out prompts."""
    found: dict[str, float] = {}
    for dataset in sorted(set(datasets.tolist())):
        mine = np.flatnonzero((datasets == dataset) & ~np.isnan(held[:, 0]))
        weak, strong = targets[mine, 0], targets[mine, 1]
        if len(mine) and strong.sum() > weak.sum():
            found[dataset] = measure_apgr(lengths[mine], weak, strong)
    return found
