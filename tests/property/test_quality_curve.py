"""Curves from own traffic, what is proposed of them, and drift of scores."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from routing.complexity.quality_curve import (
    NOBODY,
    Observation,
    draw_curve,
    estimate_served,
    propose_for_quality,
    propose_for_share,
)
from routing.complexity.score_drift import NOTEWORTHY, measure_drift

_SHARES = st.floats(0, 1)
_SAMPLES = st.builds(
    Observation,
    score=st.floats(-1, 1),
    lower=_SHARES,
    upper=_SHARES,
    is_upper_served=st.booleans(),
    is_sample=st.just(True),
    lower_cost=st.just(1.0),
    upper_cost=st.just(10.0),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(_SAMPLES, min_size=1, max_size=30))
def test_the_curve_is_what_each_threshold_would_have_done(found: list[Observation]) -> None:
    curve = draw_curve(found)
    assert [point.threshold for point in curve] == sorted({point.threshold for point in curve})
    assert (curve[0].large_share, curve[-1].large_share) == (1, 0)
    assert curve[-1].threshold == NOBODY
    for one, other in pairwise(curve):
        assert one.large_share > other.large_share
    for point in curve:
        routed = [
            (one.upper or 0.0) if one.score >= point.threshold else (one.lower or 0.0)
            for one in found
        ]
        assert point.quality is not None
        assert abs(point.quality.value - sum(routed) / len(found)) < 1e-9
        assert point.quality.low <= point.quality.high
        share = sum(one.score >= point.threshold for one in found) / len(found)
        assert point.large_share == share
        assert point.relative_cost is not None
        assert abs(point.relative_cost - (share + (1 - share) / 10)) < 1e-9


@settings(max_examples=10, deadline=None)
@given(st.lists(_SAMPLES, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_requests_changes_nothing(
    found: list[Observation], drawn: random.Random
) -> None:
    turned = drawn.sample(found, len(found))
    assert draw_curve(turned) == draw_curve(found)
    assert estimate_served(turned) == estimate_served(found)


def traffic(count: int, *, seed: int = 7) -> list[Observation]:
    """Requests of which the small model fails those with a score above 0."""
    drawn = random.Random(seed)
    return [
        Observation(
            score, 0.95 if score < 0 else 0.2, 1.0, score >= 0, lower_cost=1.0, upper_cost=10.0
        )
        for score in (drawn.uniform(-1, 1) for _ in range(count))
    ]


def test_the_proposal_meets_the_target_with_the_fewest_large_calls() -> None:
    curve = draw_curve(traffic(400))
    proposal = propose_for_quality(curve, 0.97)
    assert proposal is not None
    assert -0.1 < proposal.point.threshold < 0.05
    for point in curve:
        if point.large_share < proposal.point.large_share:
            assert point.quality is not None
            assert point.quality.value < proposal.wanted
    by_share = propose_for_share(curve, 0.3)
    assert by_share is not None
    assert 0.25 < by_share.point.large_share <= 0.3
    assert propose_for_quality([], 0.9) is None


def test_few_samples_are_not_certain() -> None:
    def widths(count: int) -> float:
        drawn = random.Random(count)
        found = [
            Observation(drawn.random(), float(drawn.random() < 0.8), 1.0, is_upper_served=False)
            for _ in range(count)
        ]
        quality = draw_curve(found)[-1].quality
        assert quality is not None
        return quality.high - quality.low

    assert widths(15) > 3 * widths(600) > 0
    curve = draw_curve(traffic(400))
    found, certain = (propose_for_quality(curve, 0.9, certain_only=one) for one in (False, True))
    assert found is not None
    assert certain is not None
    assert certain.is_certain
    assert certain.point.threshold <= found.point.threshold
    assert certain.point.quality is not None
    assert certain.point.quality.low >= certain.wanted - 1e-6


def test_intervals_hold_what_is_true() -> None:
    """Of 40 draws the interval of what was served misses the truth (0.5) seldom."""
    misses = 0
    for seed in range(40):
        drawn = random.Random(seed)
        found = [Observation(0.0, drawn.random(), None, is_upper_served=False) for _ in range(120)]
        served = estimate_served(found, seed=seed)
        assert served is not None
        misses += not served.low <= 0.5 <= served.high
    assert misses <= 6


def test_a_clients_word_counts_in_the_means_and_not_in_the_shares() -> None:
    samples = [Observation(score / 10, 0.5, 1.0, is_upper_served=False) for score in range(10)]
    said = [Observation(0.05, 0.0, None, is_upper_served=False, is_sample=False)] * 5
    without, curve = draw_curve(samples), draw_curve(samples + said)
    assert [point.large_share for point in curve] == [point.large_share for point in without]
    assert curve[-1].quality is not None
    assert abs(curve[-1].quality.value - 5 / 15) < 1e-9
    assert curve[0].quality == without[0].quality  # all at the upper tier
    served = estimate_served([*samples, *said])
    assert served is not None
    assert abs(served.value - 5 / 15) < 1e-9
    assert draw_curve(said) == []
    assert estimate_served([]) is None


@given(st.lists(st.integers(0, 50), min_size=12, max_size=12), st.integers(1, 9))
def test_the_same_shares_are_no_drift(counts: list[int], times: int) -> None:
    found = measure_drift(counts, [count * times for count in counts])
    assert found is None if not sum(counts) else abs(found or 0.0) < 1e-9


@given(
    st.lists(st.integers(0, 50), min_size=12, max_size=12),
    st.lists(st.integers(0, 50), min_size=12, max_size=12),
)
def test_drift_is_never_negative(before: list[int], now: list[int]) -> None:
    found = measure_drift(before, now)
    assert found is None or found >= 0


def test_other_prompts_drift() -> None:
    before = [0, 5, 10, 20, 40, 60, 40, 20, 10, 5, 0, 0]
    a_little = [0, 6, 11, 19, 38, 62, 40, 21, 9, 4, 1, 0]
    moved = [0, 0, 0, 5, 10, 20, 40, 60, 40, 20, 10, 5]
    assert (measure_drift(before, a_little) or 0) < 0.05
    assert (measure_drift(before, moved) or 0) > NOTEWORTHY
    assert measure_drift(before, [0] * 12) is None
