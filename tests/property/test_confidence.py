"""A cascade's confidence: bounded, monotone in each figure, whatever an engine tells."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.snapshot.model import CascadeWeights
from routing.complexity.confidence import (
    LOWEST_LOGPROB,
    Beginning,
    FirstTokens,
    measure_confidence,
)

tolds = st.lists(st.none() | st.floats(allow_nan=True, allow_infinity=True), max_size=40)
logprobs = st.floats(LOWEST_LOGPROB, 0)
weights = st.builds(
    CascadeWeights,
    bias=st.floats(-100, 100),
    mean_logprob=st.floats(0, 100),
    min_logprob=st.floats(0, 100),
    prompt_score=st.floats(-100, 0),
)


@given(told=tolds, wanted=st.integers(1, 20), kinds=weights, score=st.none() | st.floats(-2, 2))
def test_whatever_is_told_gives_a_share_or_nothing(
    told: list[float | None], wanted: int, kinds: CascadeWeights, score: float | None
) -> None:
    tokens = FirstTokens(wanted)
    for one in told:
        tokens.add(one)
    known = [one for one in told if one is not None and not math.isnan(one)]
    beginning = tokens.summarise()
    assert tokens.count == min(len(known), wanted)
    assert tokens.is_complete == (len(known) >= wanted)
    assert (beginning is None) == (not known)
    if beginning is not None:
        first = [min(max(one, LOWEST_LOGPROB), 0.0) for one in known[:wanted]]
        assert beginning.min_logprob == min(first)
        assert beginning.mean_logprob == pytest.approx(sum(first) / len(first))
        assert 0 < measure_confidence(kinds, beginning, score) <= 1


@given(
    kinds=weights,
    mean=st.tuples(logprobs, logprobs),
    low=st.tuples(logprobs, logprobs),
    score=st.tuples(st.floats(-2, 2), st.floats(-2, 2)),
)
def test_a_likelier_beginning_and_an_easier_prompt_never_lower_it(
    kinds: CascadeWeights,
    mean: tuple[float, float],
    low: tuple[float, float],
    score: tuple[float, float],
) -> None:
    worse = measure_confidence(kinds, Beginning(min(mean), min(low)), max(score))
    for better in (
        measure_confidence(kinds, Beginning(max(mean), min(low)), max(score)),
        measure_confidence(kinds, Beginning(min(mean), max(low)), max(score)),
        measure_confidence(kinds, Beginning(min(mean), min(low)), min(score)),
    ):
        assert better >= worse


def test_the_defaults_tell_sure_from_unsure() -> None:
    def of(mean: float, low: float, score: float | None = None) -> float:
        return measure_confidence(CascadeWeights(), Beginning(mean, low), score)

    assert of(-0.1, -1) > 0.85
    assert of(-1.5, -5) < 0.2
    assert of(-0.5, -2, 0.6) < of(-0.5, -2) == of(-0.5, -2, 0.0)
