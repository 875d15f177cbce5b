"""How a route's tiers stand by what was observed of them: curves, proposals, floor and drift. Pure.

Two spans of time: the curve's goes back a window, or to the last change of the weights, whose scores
would mean something else. The floor's begins anew with every change of the policy too, so that what
one threshold did is not held against the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from billing.shadow.observations import Observed
from routing.complexity.quality_curve import (
    CurvePoint,
    Estimate,
    Observation,
    Proposal,
    draw_curve,
    estimate_served,
    propose_for_quality,
    propose_for_share,
)
from routing.complexity.score_drift import NOTEWORTHY, measure_drift

WORTH_MOVING = 0.02  # of the requests; a threshold that moves fewer is not moved unasked
MOST_OBSERVATIONS = (
    2_000  # of each kind, the newest; intervals of more would be no narrower by much
)


@dataclass(frozen=True, slots=True)
class PairStanding:
    """Two neighbouring tiers. ``samples`` were compared, ``feedback`` only judged by their clients."""

    lower_tier: str
    upper_tier: str
    threshold: float  # in effect between them
    large_share: float  # of the samples, at that
    samples: int
    feedback: int
    curve: tuple[CurvePoint, ...]  # the threshold in effect is a point of it
    proposal: Proposal | None  # None: too few samples, or no threshold meets the target
    certain: Proposal | None  # by the low end of the interval too: what may be taken unasked


@dataclass(frozen=True, slots=True)
class Standing:
    """One route. ``served`` is what the answers were worth that clients got, since the last change."""

    pairs: tuple[PairStanding, ...]
    served: Estimate | None
    served_samples: int
    is_below_floor: bool
    drift: float | None  # None: too few scores before or now to say
    is_drifting: bool


def judge_standing(
    policy: Mapping[str, Any],
    tiers: Mapping[str, Any],
    *,
    observed: Sequence[Observed],
    since_change: Sequence[Observed],
    scores_before: Sequence[int],
    scores_now: Sequence[int],
    draws_curves: bool = True,
) -> Standing:
    """Return the standing; ``policy`` and ``tiers`` as the database keeps them.

    ``observed`` are the curve's, ``since_change`` the floor's. Without ``draws_curves`` no pair has
    one, and nothing is proposed.
    """
    names = [tier["name"] for tier in tiers["tiers"]]
    pairs = tuple(
        _judge_pair(policy, (lower, upper), threshold, observed, draws_curves=draws_curves)
        for (lower, upper), threshold in zip(pairwise(names), tiers["thresholds"], strict=True)
    )
    known = [one for one in map(_served_quality, since_change) if one is not None]
    served = estimate_served([Observation(0.0, one, None, is_upper_served=False) for one in known])
    floor, least = policy["quality_floor"], policy["min_samples"]
    is_enough = min(sum(scores_before), sum(scores_now)) >= least
    drift = measure_drift(scores_before, scores_now) if is_enough else None
    return Standing(
        pairs=pairs,
        served=served,
        served_samples=len(known),
        is_below_floor=(
            floor is not None
            and served is not None
            and len(known) >= least
            and served.value < floor
        ),
        drift=drift,
        is_drifting=drift is not None and drift > NOTEWORTHY,
    )


def find_thresholds(
    standing: Standing, tiers: Mapping[str, Any], *, certain_only: bool
) -> list[float] | None:
    """Return the thresholds that are proposed; None where they are those in effect, or no order."""
    found = []
    for pair in standing.pairs:
        proposal = pair.certain if certain_only else pair.proposal
        found.append(pair.threshold if proposal is None else proposal.point.threshold)
    if found == tiers["thresholds"] or any(one >= other for one, other in pairwise(found)):
        return None
    return found


def is_worth_moving(standing: Standing, policy: Mapping[str, Any]) -> bool:
    """Tell whether a certain proposal may be taken unasked.

    Enough must be known of what the last change did, lest thresholds run after each new sample.
    """
    return standing.served_samples >= policy["min_samples"] and any(
        pair.certain is not None
        and abs(pair.certain.point.large_share - pair.large_share) >= WORTH_MOVING
        for pair in standing.pairs
    )


def _judge_pair(
    policy: Mapping[str, Any],
    pair: tuple[str, str],
    threshold: float,
    observed: Sequence[Observed],
    *,
    draws_curves: bool,
) -> PairStanding:
    lower, upper = pair
    found = [one for one in (_observe(each, lower, upper) for each in observed) if one is not None]
    samples = sum(one.is_sample for one in found)
    above = sum(one.is_sample and one.score >= threshold for one in found)
    curve = draw_curve(found, in_effect=threshold) if draws_curves else []
    proposal = certain = None
    if samples >= policy["min_samples"]:
        share, kept = policy["target_large_share"], policy["target_quality"]
        if share is not None:
            proposal = certain = propose_for_share(curve, share)
        else:
            proposal = propose_for_quality(curve, kept)
            certain = propose_for_quality(curve, kept, certain_only=True)
    return PairStanding(
        lower_tier=lower,
        upper_tier=upper,
        threshold=threshold,
        large_share=above / samples if samples else 0.0,
        samples=samples,
        feedback=len(found) - samples,
        curve=tuple(curve),
        proposal=proposal,
        certain=certain,
    )


def _observe(one: Observed, lower: str, upper: str) -> Observation | None:
    """Return what a request says of two tiers; None: nothing."""
    is_upper_served = one.served_tier == upper
    if one.lower_tier is None:  # its client's word alone
        if one.served_tier not in (lower, upper):
            return None
        return Observation(
            score=one.tier_score,
            lower=None if is_upper_served else one.feedback,
            upper=one.feedback if is_upper_served else None,
            is_upper_served=is_upper_served,
            is_sample=False,
        )
    if (one.lower_tier, one.upper_tier) != (lower, upper):
        return None
    said = one.feedback
    return Observation(
        score=one.tier_score,
        lower=one.lower_quality if said is None or is_upper_served else said,
        upper=said if said is not None and is_upper_served else one.upper_quality,
        is_upper_served=is_upper_served,
        lower_cost=None if one.lower_charge is None else float(one.lower_charge),
        upper_cost=None if one.upper_charge is None else float(one.upper_charge),
    )


def _served_quality(one: Observed) -> float | None:
    if one.feedback is not None:
        return one.feedback
    return one.upper_quality if one.served_tier == one.upper_tier else one.lower_quality
