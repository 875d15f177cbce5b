"""Which tier of a route a request goes to: by its score, its conversation, and what the tiers can do. Pure.

Tiers are numbered from 0, the cheapest. A conversation moves up and not down, and only where a user
has spoken: while tools are called it stays on the model that it has.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from enum import StrEnum
from math import isfinite
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple, Protocol

from routing.complexity.features import HEAD_CHARACTERS, TAIL_CHARACTERS

if TYPE_CHECKING:
    from routing.complexity.predictor import Prediction

# User messages before the last, newest first, are scored too where nothing is known of a
# conversation: so many at most, and all together no longer than what is looked at of one.
MAX_EARLIER_TEXTS = 4
MAX_TEXT_CHARACTERS = HEAD_CHARACTERS + TAIL_CHARACTERS


class TierReason(StrEnum):
    """Why a request went to its tier."""

    OVERRIDE = "override"  # the request named it
    SCORE = "score"
    LENGTH = "length"  # out of the classifier's domain: the prompt's length alone
    STICKY = "sticky"  # its conversation had come up to it before
    TOOL_LOOP = "tool_loop"  # no user has spoken since: it stays where it is
    NO_TEXT = "no_text"  # nothing to score: the default tier
    SCORING_SLOW = "scoring_slow"  # over the time budget: the default tier
    SCORING_FAILED = "scoring_failed"  # the default tier
    # The tier that one of the above means was passed over, because
    CONTEXT = "context"  # the request does not fit its engines
    CAPABILITY = "capability"  # they cannot do what is asked
    HEALTH = "health"  # none of them is there
    NOT_ALLOWED = "not_allowed"  # the API key may not use its route
    UNPRICED = "unpriced"  # a budget must hold and it has no price


class Scores(Protocol):
    """What scores a prompt: a Predictor."""

    def predict(self, prompt: str) -> Prediction:
        """Return the prediction for a prompt."""


class Turn(NamedTuple):
    """Where a request stands in its conversation."""

    texts: tuple[str, ...]  # of the user's messages, the last first; empty: nothing to score
    is_boundary: bool  # a user spoke last
    is_first: bool  # nobody has answered yet


class Remembered(NamedTuple):
    """What is known of a conversation, as tiers of the present policy."""

    floor: int  # it does not go below it at a turn's beginning
    served: int  # its latest request


class Wanted(NamedTuple):
    """The tier that a request should have, if that tier can serve it."""

    tier: int
    reason: TierReason
    score: float | None = None


class _Scored(NamedTuple):
    score: float
    is_in_domain: bool


class ScoringFailedError(Exception):
    """There is no score; ``reason`` says why."""

    def __init__(self, reason: TierReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


def tier_of_score(score: float, thresholds: Sequence[float]) -> int:
    """Return the tier of a score: one more for each threshold (ascending) that it reaches."""
    return bisect_right(thresholds, score)


def score_texts(
    predictor: Scores | None,
    texts: Sequence[str],
    *,
    budget_ms: float,
    clock: Callable[[], int] = perf_counter_ns,
) -> _Scored:
    """Return the highest score of ``texts``, the first of which always counts.

    ``clock`` tells nanoseconds. Raises :class:`ScoringFailedError` also for whatever the predictor
    raises, and past the budget.
    """
    if predictor is None:
        raise ScoringFailedError(TierReason.SCORING_FAILED)
    left_ns = budget_ms * 1_000_000
    best: _Scored | None = None
    characters = 0
    for text in texts[: 1 + MAX_EARLIER_TEXTS]:
        characters += len(text)
        if best is not None and characters > MAX_TEXT_CHARACTERS:
            break
        found, took_ns = _predict_within(predictor, text, left_ns, clock)
        left_ns -= took_ns
        if not isfinite(found.score):
            raise ScoringFailedError(TierReason.SCORING_FAILED)
        if best is None or found.score > best.score:
            best = _Scored(found.score, found.is_in_domain)
    if best is None:
        raise ScoringFailedError(TierReason.NO_TEXT)
    return best


def _predict_within(
    predictor: Scores, text: str, limit_ns: float, clock: Callable[[], int]
) -> tuple[Prediction, int]:
    """Return the prediction and what it took.

    Over the limit by less than a factor of ten it is measured once more: the worker may have been
    put aside meanwhile, and the clock of its own CPU time costs more than most predictions.
    """
    for is_last in (False, True):
        began = clock()
        try:
            found = predictor.predict(text)
        except Exception as error:
            raise ScoringFailedError(TierReason.SCORING_FAILED) from error
        took = clock() - began
        if took <= limit_ns:
            return found, took
        if is_last or took > 10 * limit_ns:
            break
    raise ScoringFailedError(TierReason.SCORING_SLOW)


def want_tier(
    turn: Turn,
    known: Remembered | None,
    *,
    thresholds: Sequence[float],
    default: int,
    score: Callable[[Sequence[str]], _Scored],
) -> Wanted:
    """Return the tier that a request should have; ``known``: None where nothing is remembered.

    Without a memory the body decides alone, so that every worker decides alike: a tool loop is
    scored by the user's message that began it, and earlier messages count beside the last.
    """
    floor = 0
    if known is not None:
        if not turn.is_boundary:
            return Wanted(known.served, TierReason.TOOL_LOOP)
        floor = known.floor
        if floor >= len(thresholds):
            return Wanted(floor, TierReason.STICKY)
    try:
        scored = score(turn.texts[:1] if known is not None else turn.texts)
    except ScoringFailedError as error:
        return Wanted(max(default, floor), error.reason)
    tier = tier_of_score(scored.score, thresholds)
    if floor > tier:
        return Wanted(floor, TierReason.STICKY, scored.score)
    reason = TierReason.SCORE if scored.is_in_domain else TierReason.LENGTH
    return Wanted(tier, reason, scored.score)


# What stands against a tier, the least first; the others rule it out.
_RANKS: dict[TierReason, int] = {
    TierReason.HEALTH: 1,
    TierReason.CONTEXT: 2,
    TierReason.CAPABILITY: 3,
}


def find_tier(
    wanted: int, obstacles: Sequence[TierReason | None], context_tokens: Sequence[int | None]
) -> int | None:
    """Return the tier that serves: the wanted one, else the next above, else the next below.

    ``obstacles`` are what stands against each tier, None: nothing. With something against all of
    them, the one with the least; of those that are too short, the longest. None: all are ruled out.
    """
    order = (*range(wanted, len(obstacles)), *range(wanted - 1, -1, -1))
    ranks: dict[int, int] = {
        tier: 0 if what is None else _RANKS[what]
        for tier in order
        if (what := obstacles[tier]) is None or what in _RANKS
    }
    if not ranks:
        return None
    least = min(ranks.values())
    left = [tier for tier, rank in ranks.items() if rank == least]
    if least == _RANKS[TierReason.CONTEXT]:
        return max(left, key=lambda tier: context_tokens[tier] or 0)  # the first of the longest
    return left[0]
