"""The control API's answers about shadow evaluation, as the shadow page reads them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from admin_ui.control_records import Record


class Estimate(Record, frozen=True, kw_only=True):
    """A mean with its 95 % interval."""

    value: Decimal
    low: Decimal
    high: Decimal


class CurvePoint(Record, frozen=True, kw_only=True):
    """What a threshold does; cost is relative to all at the upper tier."""

    threshold: float
    large_share: Decimal
    quality: Estimate | None = None
    relative_cost: Decimal | None = None


class Proposal(CurvePoint, frozen=True, kw_only=True):
    """A threshold that meets the target; certain: by the low end of the interval too."""

    wanted: Decimal
    is_certain: bool


class Pair(Record, frozen=True, kw_only=True):
    """Two neighbouring tiers and the threshold in effect between them."""

    lower_tier: str
    upper_tier: str
    threshold: float
    large_share: Decimal
    samples: int
    feedback: int
    proposal: Proposal | None = None
    curve: tuple[CurvePoint, ...] | None = None


class ShadowCost(Record, frozen=True, kw_only=True):
    """What calls of one kind have cost."""

    kind: str
    currency: str
    calls: int
    failed_calls: int
    unrated_calls: int
    cost: Decimal
    cost_today: Decimal


class ShadowAlarm(Record, frozen=True, kw_only=True):
    """What is wrong now."""

    kind: str
    since: datetime
    is_sent: bool


class ShadowPolicy(Record, frozen=True, kw_only=True):
    """Which requests are asked again, what that may cost a day, and what follows."""

    share: Decimal
    daily_budget: Decimal
    currency: str
    method: str
    judge_route: str | None = None
    quality_floor: Decimal | None = None
    window_hours: int
    min_samples: int
    target_quality: Decimal | None = None
    target_large_share: Decimal | None = None
    moves_threshold: bool
    rolls_back: bool


class ShadowedRoute(Record, frozen=True, kw_only=True):
    """How one route stands."""

    route: str
    changed_at: datetime
    policy: ShadowPolicy
    version: int | None = None
    thresholds: tuple[float, ...]
    earlier_thresholds: tuple[float, ...] | None = None
    quality: Estimate | None = None
    samples: int
    is_below_floor: bool
    score_drift: Decimal | None = None
    is_drifting: bool
    proposed_thresholds: tuple[float, ...] | None = None
    spent_today: Decimal
    pairs: tuple[Pair, ...]
    costs: tuple[ShadowCost, ...] = ()
    alarms: tuple[ShadowAlarm, ...] = ()
