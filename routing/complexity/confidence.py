"""How sure a model is of its answer, by the log probabilities of its first tokens. Pure.

The weights are those of a logistic regression, within signs that make it sensible: a likelier beginning
never lowers the score, and a prompt on which the large model is expected to add more never raises it.
"""

from __future__ import annotations

from math import exp, isnan
from typing import NamedTuple, Protocol

LOWEST_LOGPROB = -20.0  # vLLM writes -9999 for what is impossible: it is no worse than this
_MAX_EXPONENT = 40.0


class ConfidenceWeights(Protocol):
    """What each figure counts for."""

    @property
    def bias(self) -> float:
        """Whatever the answer is like."""

    @property
    def mean_logprob(self) -> float:
        """Of the mean; 0 or more."""

    @property
    def min_logprob(self) -> float:
        """Of the least likely token; 0 or more."""

    @property
    def prompt_score(self) -> float:
        """Of the classifier's score; 0 or less."""


class Beginning(NamedTuple):
    """What the first tokens of an answer were like; natural logarithms."""

    mean_logprob: float
    min_logprob: float


class FirstTokens:
    """The log probabilities of an answer's first tokens, as they come."""

    __slots__ = ("_lowest", "_sum", "count", "wanted")

    def __init__(self, wanted: int) -> None:
        """Look at the first ``wanted`` tokens, 1 at least; what comes after them counts for nothing."""
        self.wanted = wanted
        self.count = 0
        self._sum = 0.0
        self._lowest = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether all that are wanted have come."""
        return self.count >= self.wanted

    def add(self, logprob: float | None) -> None:
        """Take the next token's. One that the engine did not tell (None, NaN) is passed over."""
        if logprob is None or isnan(logprob) or self.is_complete:
            return
        bounded = min(max(logprob, LOWEST_LOGPROB), 0.0)
        self.count += 1
        self._sum += bounded
        self._lowest = min(self._lowest, bounded)

    def summarise(self) -> Beginning | None:
        """Return what they were like so far; None where there are none."""
        if not self.count:
            return None
        return Beginning(self._sum / self.count, self._lowest)


def measure_confidence(
    weights: ConfidenceWeights, beginning: Beginning, prompt_score: float | None
) -> float:
    """Return how likely the answer is good, 0 to 1; without a prompt score as with one of 0."""
    exponent = (
        weights.bias
        + weights.mean_logprob * beginning.mean_logprob
        + weights.min_logprob * beginning.min_logprob
        + weights.prompt_score * (prompt_score or 0.0)
    )
    bounded = min(max(exponent, -_MAX_EXPONENT), _MAX_EXPONENT)
    return 1.0 / (1.0 + exp(-bounded))
