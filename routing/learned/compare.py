"""Is the classifier clearly better than the prompts' length, or only by luck?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from routing.learned.curve import is_large_better, measure_apgr, order_rows

# Of the resampled prompts, the share in which the classifier has to be ahead: chosen on training folds.
SURE_SHARE = 0.95
# Of fewer prompts a few words that happen to fit are ahead in every resample.
FEWEST_PROMPTS = 40
_TIMES = 400


@dataclass(frozen=True, slots=True)
class Comparison:
    """APGR on held-out prompts. ``ahead_share``: of resamples, those in which the classifier is ahead."""

    prompts: int
    classifier: float
    length: float
    ahead_share: float

    @property
    def is_better(self) -> bool:
        """Say whether the classifier is worth more than the length, and than a random mix."""
        is_enough = self.prompts >= FEWEST_PROMPTS
        return is_enough and self.classifier > 0.5 and self.ahead_share >= SURE_SHARE


def compare_with_length(
    scores: Any, lengths: Any, weak: Any, strong: Any, *, seed: int
) -> Comparison:
    """Rank the same prompts by both, and again resampled: of a few hundred, half are luck."""
    drawn = np.random.default_rng(seed)
    scores, lengths, weak, strong = order_rows(scores, lengths, weak, strong)
    ahead = counted = 0
    for _ in range(_TIMES):
        chosen = drawn.integers(0, len(scores), len(scores))
        sample = weak[chosen], strong[chosen]
        if is_large_better(*sample):
            counted += 1
            ours = measure_apgr(scores[chosen], *sample)
            ahead += ours > measure_apgr(lengths[chosen], *sample)
    return Comparison(
        prompts=len(scores),
        classifier=measure_apgr(scores, weak, strong),
        length=measure_apgr(lengths, weak, strong),
        ahead_share=ahead / counted if counted else 0.0,
    )
