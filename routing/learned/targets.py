"""What the heads are trained to and judged by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from routing.learned.judged_prompts import JudgedPrompt


def make_targets(rows: Sequence[JudgedPrompt]) -> Any:
    """Return (rows, 2) scores within 0..1; a dataset with marks of 1 to 10 is scaled by 10."""
    scores = np.array([[row.weak_score, row.strong_score] for row in rows]).reshape(-1, 2)
    most: dict[str, float] = {}
    for row, both in zip(rows, scores, strict=True):
        most[row.dataset] = max(most.get(row.dataset, 0.0), both.max())
    return scores / np.array([[10.0 if most[row.dataset] > 1 else 1.0] for row in rows])
