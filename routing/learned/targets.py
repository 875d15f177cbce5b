"""What the heads are trained to and judged by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from routing.learned.judged_prompts import JudgedPrompt


def make_targets(rows: Sequence[JudgedPrompt]) -> Any:
    """Return (rows, 2) scores within 0..1; judges' marks of 1 to 10 are scaled by 10."""
    scores = np.array([[row.weak_score, row.strong_score] for row in rows])
    return scores / 10 if scores.max() > 1 else scores
