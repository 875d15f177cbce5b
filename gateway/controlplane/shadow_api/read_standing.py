"""A route's standing: first the evidence is read, then it is judged, beside the event loop."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from billing.shadow.observations import Observed, count_scores, list_observed
from gateway.controlplane.catalog.models import Route
from gateway.controlplane.catalog.tier_versions import find_scale_start, list_tier_versions
from gateway.controlplane.classifiers_api.models import Classifier
from gateway.controlplane.database import ReadSession
from gateway.controlplane.errors import ConflictError
from gateway.controlplane.shadow_api.standing import MOST_OBSERVATIONS, Standing, judge_standing
from routing.complexity.answer_scores import ScoringMethod


@dataclass(frozen=True, slots=True)
class RouteStanding:
    """What was judged, of which span, and by which policies."""

    route_id: str
    route: str
    policy: dict[str, Any]
    tiers: dict[str, Any]
    from_at: datetime  # of the curve
    changed_at: datetime  # from where the floor counts
    to_at: datetime
    standing: Standing


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a standing is judged from, read from the database."""

    route_id: str
    route: str
    policy: dict[str, Any]
    tiers: dict[str, Any]
    from_at: datetime
    changed_at: datetime
    to_at: datetime
    observed: list[Observed]
    scores_before: list[int]
    scores_now: list[int]
    draws_curves: bool

    def judge(self) -> RouteStanding:
        """Return how the route stands: half a second of arithmetic a pair of tiers, with curves."""
        standing = judge_standing(
            self.policy,
            self.tiers,
            observed=self.observed,
            since_change=[one for one in self.observed if one.at >= self.changed_at],
            scores_before=self.scores_before,
            scores_now=self.scores_now,
            draws_curves=self.draws_curves,
        )
        return RouteStanding(
            self.route_id,
            self.route,
            self.policy,
            self.tiers,
            self.from_at,
            self.changed_at,
            self.to_at,
            standing,
        )


async def read_evidence(
    session: ReadSession,
    route: Route,
    *,
    now: datetime,
    project_id: str | None = None,
    draws_curves: bool = True,
) -> Evidence:
    """Return what is known of the route's tiers, by one project's requests if one is named.

    Without ``draws_curves`` nothing will be proposed: they are most of the work.

    Raises :class:`ConflictError` for a route that is not shadowed.
    """
    policy, tiers = route.shadow, route.tiers
    if policy is None or tiers is None:
        raise ConflictError("This route has no shadow policy.", param="route")
    window = timedelta(hours=policy["window_hours"])
    name = tiers.get("classifier")
    classifier = None if name is None else await session.get(Classifier, name)
    versions = await list_tier_versions(session, route.id)
    # What was seen before means something else: other weights, another classifier, other tiers.
    starts = [find_scale_start(versions), None if classifier is None else classifier.updated_at]
    scale_at = max((one for one in starts if one is not None), default=None)
    from_at = now - window if scale_at is None else max(now - window, scale_at)
    changed_at = max(from_at, versions[0].made_at) if versions else from_at
    before_at = from_at - window if scale_at is None else max(from_at - window, scale_at)
    return Evidence(
        route_id=route.id,
        route=route.name,
        policy=policy,
        tiers=tiers,
        from_at=from_at,
        changed_at=changed_at,
        to_at=now,
        observed=await list_observed(
            session,
            route_id=route.id,
            from_at=from_at,
            to_at=now,
            methods=_methods_of(policy),
            most=MOST_OBSERVATIONS,
            project_id=project_id,
        ),
        scores_before=await count_scores(
            session, route_id=route.id, from_at=before_at, to_at=from_at
        ),
        scores_now=await count_scores(session, route_id=route.id, from_at=from_at, to_at=now),
        draws_curves=draws_curves,
    )


def _methods_of(policy: dict[str, Any]) -> list[str]:
    """Return as what the present method is told in scores."""
    if policy["method"] != "exact":
        return [policy["method"]]
    return [ScoringMethod.JSON if policy["check"] is None else ScoringMethod.CHECK]
