"""The rules of tiers: they never fail, a conversation never goes down by itself, more score is no less tier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.complexity.predictor import Prediction
from routing.complexity.tier_memory import FORGET_SECONDS, TierMemory
from routing.complexity.tier_policy import (
    MAX_TEXT_CHARACTERS,
    Remembered,
    ScoringFailedError,
    TierReason,
    Turn,
    Wanted,
    find_tier,
    score_texts,
    tier_of_score,
    want_tier,
)

scores = st.floats(-1, 1)
thresholds = st.lists(scores, min_size=1, max_size=7, unique=True).map(sorted)
obstacles = st.sampled_from(
    [
        None,
        TierReason.HEALTH,
        TierReason.CONTEXT,
        TierReason.CAPABILITY,
        TierReason.NOT_ALLOWED,
        TierReason.UNPRICED,
    ]
)
TURN = Turn(("text",), is_boundary=True, is_first=False)


class Scorer:
    """Says the scores it was given, in turn, whatever the text."""

    def __init__(self, *given: float | Exception) -> None:
        self.given = list(given)
        self.texts: list[str] = []

    def predict(self, prompt: str) -> Prediction:
        self.texts.append(prompt)
        found = self.given.pop(0)
        if isinstance(found, Exception):
            raise found
        return Prediction(0.5, 0.5, found, True, 0.0)


def scorer(value: float | TierReason) -> Any:
    def score(texts: Sequence[str]) -> Any:
        if isinstance(value, TierReason):
            raise ScoringFailedError(value)
        return score_texts(Scorer(value), texts, budget_ms=1e6)

    return score


@given(thresholds, scores, scores)
def test_more_score_is_no_lower_tier(steps: list[float], one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 <= tier_of_score(low, steps) <= tier_of_score(high, steps) <= len(steps)
    for number, step in enumerate(steps):
        assert tier_of_score(step, steps) == number + 1


@given(
    thresholds,
    st.lists(
        st.tuples(scores | st.sampled_from([TierReason.SCORING_SLOW]), st.booleans()), min_size=1
    ),
    st.data(),
)
def test_a_conversation_never_goes_down(
    steps: list[float], requests: list[tuple[float | TierReason, bool]], data: st.DataObject
) -> None:
    default = data.draw(st.integers(0, len(steps)))
    known: Remembered | None = None
    for value, is_boundary in requests:
        turn = TURN._replace(is_boundary=is_boundary)
        wanted = want_tier(turn, known, thresholds=steps, default=default, score=scorer(value))
        if known is not None:
            assert wanted.tier >= known.floor
            if not is_boundary:  # tools: the model stays, up as well as down
                assert wanted == Wanted(known.served, TierReason.TOOL_LOOP)
        if not isinstance(value, TierReason) and known is None:
            assert wanted.tier == tier_of_score(value, steps)
        known = Remembered(max(wanted.tier, 0 if known is None else known.floor), wanted.tier)


@given(st.lists(obstacles, min_size=2, max_size=8), st.data())
def test_there_is_a_tier_unless_all_are_ruled_out(
    against: list[TierReason | None], data: st.DataObject
) -> None:
    wanted = data.draw(st.integers(0, len(against) - 1))
    contexts = data.draw(
        st.lists(st.none() | st.integers(1, 9), min_size=len(against), max_size=len(against))
    )
    place = find_tier(wanted, against, contexts)
    out = {TierReason.NOT_ALLOWED, TierReason.UNPRICED}
    if place is None:
        assert set(against) <= out
        return
    assert against[place] not in out
    free = [tier for tier, what in enumerate(against) if what is None]
    if not free:
        return
    above = [tier for tier in free if tier >= wanted]
    assert place == (above[0] if above else free[-1])


def test_what_fits_nowhere_goes_to_the_longest() -> None:
    short = [TierReason.CONTEXT] * 3
    assert find_tier(0, short, [16, 128, 128]) == 1
    assert find_tier(2, short, [200, 128, None]) == 0
    assert find_tier(0, [TierReason.CAPABILITY, TierReason.HEALTH], [None, None]) == 1


def test_earlier_messages_count_where_nothing_is_remembered() -> None:
    turn = Turn(("last", "before", "first"), is_boundary=True, is_first=False)
    asked: list[Sequence[str]] = []

    def score(texts: Sequence[str]) -> Any:
        asked.append(texts)
        return score_texts(Scorer(*[0.1, 0.9, 0.2][: len(texts)]), texts, budget_ms=1e6)

    options: dict[str, Any] = {"thresholds": [0.5], "default": 0, "score": score}
    assert want_tier(turn, None, **options) == Wanted(1, TierReason.SCORE, 0.9)
    assert want_tier(turn, Remembered(0, 0), **options) == Wanted(0, TierReason.SCORE, 0.1)
    assert want_tier(turn, Remembered(1, 0), **options) == Wanted(1, TierReason.STICKY)
    assert [len(texts) for texts in asked] == [3, 1]  # at the top nothing is scored


@given(scores | st.sampled_from([TierReason.SCORING_SLOW]), thresholds, st.data())
def test_a_tool_loop_that_nobody_knows_is_scored_as_its_turn_was(
    value: float | TierReason, steps: list[float], data: st.DataObject
) -> None:
    default = data.draw(st.integers(0, len(steps)))
    turns = [TURN._replace(is_boundary=is_boundary) for is_boundary in (True, False)]
    options: dict[str, Any] = {"thresholds": steps, "default": default, "score": scorer(value)}
    began, goes_on = (want_tier(turn, None, **options) for turn in turns)
    assert began == goes_on


def test_no_more_is_scored_than_of_one_long_prompt() -> None:
    half = "x" * (MAX_TEXT_CHARACTERS // 2)
    found = Scorer(*[0.1] * 9)
    score_texts(found, ["y" * MAX_TEXT_CHARACTERS * 3, half], budget_ms=1e6)
    assert len(found.texts) == 1
    found = Scorer(*[0.1] * 9)
    score_texts(found, [half, half, "one too many"], budget_ms=1e6)
    assert len(found.texts) == 2
    found = Scorer(*[0.1] * 9)
    score_texts(found, ["short"] * 9, budget_ms=1e6)
    assert len(found.texts) == 5


@pytest.mark.parametrize(
    ("predictor", "texts", "reason"),
    [
        (None, ["x"], TierReason.SCORING_FAILED),
        (Scorer(RuntimeError("no")), ["x"], TierReason.SCORING_FAILED),
        (Scorer(float("nan")), ["x"], TierReason.SCORING_FAILED),
        (Scorer(), [], TierReason.NO_TEXT),
    ],
)
def test_without_a_score_there_is_a_reason(
    predictor: Any, texts: list[str], reason: TierReason
) -> None:
    with pytest.raises(ScoringFailedError) as caught:
        score_texts(predictor, texts, budget_ms=1e6)
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("spans_ms", "is_scored"),
    [
        ((2.0,), True),
        ((2.1, 1.9), True),  # the worker was put aside
        ((2.1, 2.1), False),
        ((20.1,), False),  # no second try of what is far too slow
        ((1.5, 0.6, 0.6), False),  # two texts: what is left of the budget holds for the second
        ((1.5, 0.5), True),
    ],
)
def test_the_budget_of_the_scoring(spans_ms: tuple[float, ...], is_scored: bool) -> None:
    texts = ["x", "y"] if spans_ms[0] == 1.5 else ["x"]
    times = [0]
    for span in spans_ms:
        times += [times[-1], times[-1] + round(span * 1_000_000)]
    ticks = iter(times[1:])

    def score() -> float:
        return score_texts(
            Scorer(*[0.1] * len(spans_ms)), texts, budget_ms=2, clock=lambda: next(ticks)
        ).score

    if is_scored:
        assert score() == 0.1
    else:
        with pytest.raises(ScoringFailedError) as caught:
            score()
        assert caught.value.reason is TierReason.SCORING_SLOW
    assert next(ticks, None) is None


@given(
    st.lists(
        st.tuples(st.sampled_from([b"%d" % n for n in range(9)]), st.floats(0, 2 * FORGET_SECONDS))
    )
)
def test_the_memory_is_bounded_and_forgets(requests: list[tuple[bytes, float]]) -> None:
    memory, now = TierMemory(limit=4), 0.0
    last: dict[bytes, float] = {}
    kept_here: list[bytes] = []  # the one that was seen longest ago first
    for conversation, span in requests:
        now += span
        kept = memory.find(conversation, now)
        if kept is not None:
            assert now - last[conversation] <= FORGET_SECONDS
        elif conversation in kept_here:
            kept_here.remove(conversation)  # forgotten by its time
        out = memory.record(conversation, floor="large", served="small", now=now)
        last[conversation] = now
        kept_here = [*(one for one in kept_here if one != conversation), conversation]
        assert out == (kept_here.pop(0) if len(kept_here) > 4 else None)
        assert memory.find(conversation, now) == ("large", "small", now)
        assert len(memory) <= 4
    memory.move(b"unknown", "large")
    assert memory.find(b"unknown", now) is None
