"""How long prompts and answers are: pairs of tokens, dealt so that any few of them are alike. Pure."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from backends.sweep.errors import SweepError

_HAND = 16
MOST_TOKENS = 2**21  # of a request's input, and of its output: above what any model takes


@dataclass(frozen=True, slots=True)
class Pair:
    """A request's tokens, and how many such requests there were."""

    input_tokens: int
    output_tokens: int
    requests: int = 1


class Lengths:
    """A distribution of pairs. Raises :class:`SweepError` for one that nothing can be drawn from."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        if any(min(pair.input_tokens, pair.output_tokens) < 1 for pair in pairs):
            raise SweepError("a request has at least one token of input and one of output")
        most = max((max(pair.input_tokens, pair.output_tokens) for pair in pairs), default=0)
        if most > MOST_TOKENS:
            raise SweepError(
                f"a request of {most} tokens is longer than any model takes; at most {MOST_TOKENS} "
                "of input and as many of output are measured"
            )
        self.pairs = sorted(
            (pair for pair in pairs if pair.requests > 0),
            key=lambda pair: (pair.input_tokens + pair.output_tokens, pair.input_tokens),
        )
        if not self.pairs:
            raise SweepError("there are no lengths to draw from")
        self._upto = list(accumulate(pair.requests for pair in self.pairs))

    @property
    def mean_input(self) -> float:
        """Mean tokens of a prompt."""
        return self._mean([pair.input_tokens for pair in self.pairs])

    @property
    def mean_output(self) -> float:
        """Mean tokens of an answer."""
        return self._mean([pair.output_tokens for pair in self.pairs])

    @property
    def requests(self) -> int:
        """The requests that it stands for."""
        return self._upto[-1]

    def deal(self, rng: random.Random) -> Iterator[Pair]:
        """Yield pairs for ever, of each sixteen one from each sixteenth of the distribution.

        By length: so that short steps of a sweep have nearly the same mix, and differ by load alone.
        """
        while True:
            places = list(range(_HAND))
            rng.shuffle(places)
            for place in places:
                at = (place + rng.random()) / _HAND * self._upto[-1]
                yield self.pairs[min(bisect_right(self._upto, at), len(self.pairs) - 1)]

    def _mean(self, tokens: Sequence[int]) -> float:
        weighed = zip(tokens, self.pairs, strict=True)
        return sum(count * pair.requests for count, pair in weighed) / self.requests
