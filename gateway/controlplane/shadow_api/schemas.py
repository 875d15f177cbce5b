"""Requests and answers about shadow evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from billing.money import format_amount
from billing.shadow.models import ShadowAlarm
from billing.shadow.observations import ShadowCosts
from gateway.controlplane.catalog.models import TierPolicyVersion
from gateway.controlplane.catalog.shadow_schemas import ShadowPolicyAnswer
from gateway.controlplane.catalog.tier_versions import find_policy_before
from gateway.controlplane.money_fields import AmountText
from gateway.controlplane.shadow_api.read_standing import RouteStanding
from gateway.controlplane.shadow_api.standing import PairStanding, find_thresholds
from gateway.controlplane.text_fields import ModelName
from routing.complexity.quality_curve import CurvePoint, Estimate, Proposal


class RouteRequest(BaseModel):
    """A route, by id or public name."""

    model_config = ConfigDict(extra="forbid")

    route: ModelName


class ProposalTaking(RouteRequest):
    """A proposal to take; with ``thresholds`` only if these are still what is proposed."""

    thresholds: list[float] | None = None


class GoingBack(RouteRequest):
    """Thresholds to go back from; with ``version`` only if that is still the one in effect."""

    version: int | None = None


class EstimateAnswer(BaseModel):
    """A mean, and its 95 % interval over resampled requests."""

    model_config = ConfigDict(from_attributes=True)

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, found: Estimate | None) -> Self | None:
        """Return the answer about an estimate, None for none."""
        return None if found is None else cls.model_validate(found)


class CurvePointAnswer(BaseModel):
    """What a threshold does; ``relative_cost`` is to all at the upper tier.

    ``quality`` null: of the requests on one side nothing is known.
    """

    threshold: float
    large_share: float
    quality: EstimateAnswer | None
    relative_cost: float | None

    @classmethod
    def of(cls, point: CurvePoint) -> Self:
        """Return the answer about one point."""
        return cls(
            threshold=point.threshold,
            large_share=point.large_share,
            quality=EstimateAnswer.of(point.quality),
            relative_cost=point.relative_cost,
        )


class ProposalAnswer(CurvePointAnswer):
    """A threshold that meets the target; ``is_certain``: by the low end of the interval too."""

    wanted: float
    is_certain: bool

    @classmethod
    def of_proposal(cls, found: Proposal | None) -> Self | None:
        """Return the answer about a proposal, None for none."""
        if found is None:
            return None
        point = CurvePointAnswer.of(found.point)
        return cls(**point.model_dump(), wanted=found.wanted, is_certain=found.is_certain)


class PairAnswer(BaseModel):
    """Two neighbouring tiers, the threshold in effect and the share of samples that reach it.

    ``proposal`` null: too few samples, or nothing meets the target. ``curve``, where it was asked
    for: from all at the upper tier to none, the threshold in effect among its points.
    """

    lower_tier: str
    upper_tier: str
    threshold: float
    large_share: float
    samples: int
    feedback: int
    proposal: ProposalAnswer | None
    curve: list[CurvePointAnswer] | None

    @classmethod
    def of(cls, pair: PairStanding, *, has_curve: bool) -> Self:
        """Return the answer about a pair."""
        return cls(
            lower_tier=pair.lower_tier,
            upper_tier=pair.upper_tier,
            threshold=pair.threshold,
            large_share=pair.large_share,
            samples=pair.samples,
            feedback=pair.feedback,
            proposal=ProposalAnswer.of_proposal(pair.proposal),
            curve=[CurvePointAnswer.of(one) for one in pair.curve] if has_curve else None,
        )


class CostAnswer(BaseModel):
    """What calls of one kind have cost the platform; ``unrated_calls`` are in no sum."""

    model_config = ConfigDict(from_attributes=True)

    kind: str
    currency: str
    calls: int
    failed_calls: int
    unrated_calls: int
    cost: AmountText
    cost_today: AmountText


class AlarmAnswer(BaseModel):
    """What is wrong now."""

    kind: str
    since: datetime
    figures: dict[str, Any]
    is_sent: bool

    @classmethod
    def of(cls, alarm: ShadowAlarm) -> Self:
        """Return the answer about an alarm."""
        return cls(
            kind=alarm.kind,
            since=alarm.since_at,
            figures=alarm.figures,
            is_sent=alarm.sent_at is not None,
        )


class _SpanAnswer(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    route: str
    from_: datetime = Field(alias="from")
    to: datetime


class ShadowStatusAnswer(_SpanAnswer):
    """One route: what its clients got since ``changed_at``, what may be changed, and what it has cost.

    ``quality`` null: nothing is known yet. ``score_drift`` null: too few scores in this span or in
    the one before. ``proposed_thresholds`` null: nothing is proposed but what is in effect.
    ``version`` is of the tier policy in effect, ``earlier_thresholds`` what a rollback puts in effect.
    ``spent_today`` is what counts against the policy's daily budget, in its currency.
    """

    changed_at: datetime
    policy: ShadowPolicyAnswer
    version: int | None
    thresholds: list[float]
    earlier_thresholds: list[float] | None
    quality: EstimateAnswer | None
    samples: int
    is_below_floor: bool
    score_drift: float | None
    is_drifting: bool
    proposed_thresholds: list[float] | None
    spent_today: str
    pairs: list[PairAnswer]
    costs: list[CostAnswer]
    alarms: list[AlarmAnswer]

    @classmethod
    def of(
        cls,
        found: RouteStanding,
        names: dict[str, str],
        costs: Sequence[ShadowCosts],
        alarms: Sequence[ShadowAlarm],
        versions: Sequence[TierPolicyVersion],
        *,
        has_curves: bool,
    ) -> Self:
        """Return the answer about one route."""
        standing = found.standing
        before = find_policy_before(versions)
        return cls(
            route=found.route,
            from_=found.from_at,
            to=found.to_at,
            changed_at=found.changed_at,
            policy=ShadowPolicyAnswer.of(found.policy, names),
            version=versions[0].version if versions else None,
            thresholds=found.tiers["thresholds"],
            earlier_thresholds=None if before is None else before["thresholds"],
            quality=EstimateAnswer.of(standing.served),
            samples=standing.served_samples,
            is_below_floor=standing.is_below_floor,
            score_drift=standing.drift,
            is_drifting=standing.is_drifting,
            proposed_thresholds=find_thresholds(standing, found.tiers, certain_only=False),
            spent_today=format_amount(
                sum(
                    (one.cost_today for one in costs if one.currency == found.policy["currency"]),
                    Decimal(0),
                )
            ),
            pairs=[PairAnswer.of(pair, has_curve=has_curves) for pair in standing.pairs],
            costs=[CostAnswer.model_validate(one) for one in costs],
            alarms=[AlarmAnswer.of(one) for one in alarms],
        )


class ShadowCurveAnswer(_SpanAnswer):
    """The quality and cost curve of each pair of neighbouring tiers, from own traffic."""

    project_id: str | None
    pairs: list[PairAnswer]

    @classmethod
    def of(cls, found: RouteStanding, project_id: str | None) -> Self:
        """Return the answer about one route's curves."""
        return cls(
            route=found.route,
            from_=found.from_at,
            to=found.to_at,
            project_id=project_id,
            pairs=[PairAnswer.of(pair, has_curve=True) for pair in found.standing.pairs],
        )


class TierVersionAnswer(BaseModel):
    """One tier policy that a route has had: who made it, and by which figures if it was not a person."""

    version: int
    made_at: datetime
    made_by: str
    thresholds: list[float] | None
    figures: dict[str, Any] | None

    @classmethod
    def of(cls, version: TierPolicyVersion) -> Self:
        """Return the answer about a version."""
        return cls(
            version=version.version,
            made_at=version.made_at,
            made_by=version.made_by,
            thresholds=None if version.policy is None else version.policy["thresholds"],
            figures=version.figures,
        )
