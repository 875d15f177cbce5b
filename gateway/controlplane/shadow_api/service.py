"""Changing a route's thresholds by what was observed: going back, or taking a proposal.

Each change is a version of the tier policy that says what made it and by which figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gateway.controlplane.catalog import repository
from gateway.controlplane.catalog.models import Route
from gateway.controlplane.catalog.service import begin_change
from gateway.controlplane.catalog.tier_versions import (
    MadeBy,
    deciding_of,
    find_policy_before,
    list_tier_versions,
    record_version,
)
from gateway.controlplane.classifiers_api.models import Classifier
from gateway.controlplane.classifiers_api.service import find_version_before, roll_back
from gateway.controlplane.database import WriteSession
from gateway.controlplane.errors import ConflictError
from gateway.controlplane.shadow_api.read_standing import RouteStanding
from gateway.controlplane.shadow_api.standing import find_thresholds


async def roll_back_thresholds(
    session: WriteSession,
    route: str,
    *,
    now: datetime,
    made_by: MadeBy = MadeBy.ADMIN,
    figures: Mapping[str, Any] | None = None,
    from_version: int | None = None,
) -> Route:
    """Put the thresholds before the present ones in effect, which are ``from_version`` if that is told.

    Raises :class:`ConflictError`: there are none, or other ones are in effect by now.
    """
    await begin_change(session)
    found = await repository.get_route_by_id_or_name(session, route)
    versions = await list_tier_versions(session, found.id)
    if from_version is not None and (not versions or versions[0].version != from_version):
        raise ConflictError("Other thresholds are in effect by now.", param="version")
    before = find_policy_before(versions)
    if before is None or found.tiers is None:
        raise ConflictError("There are no thresholds before these to go back to.", param="route")
    left = {"left_thresholds": found.tiers["thresholds"], "left": deciding_of(found.tiers)}
    found.tiers = before
    await record_version(
        session, found, made_by=made_by, now=now, figures={**(figures or {}), **left}
    )
    return found


async def take_proposal(
    session: WriteSession, standing: RouteStanding, *, made_by: MadeBy, now: datetime
) -> Route:
    """Put the proposed thresholds in effect.

    Raises :class:`ConflictError` where there is no other proposal, or the policy was changed
    meanwhile.
    """
    await begin_change(session)
    found = await repository.get_route_by_id_or_name(session, standing.route_id)
    thresholds = find_thresholds(
        standing.standing, standing.tiers, certain_only=made_by is MadeBy.PROPOSAL
    )
    if thresholds is None or found.tiers != standing.tiers:
        raise ConflictError("There is no proposal that changes anything.", param="route")
    found.tiers = {**found.tiers, "thresholds": thresholds}
    await record_version(session, found, made_by=made_by, now=now, figures=figures_of(standing))
    return found


async def go_back(
    session: WriteSession, standing: RouteStanding, *, now: datetime
) -> MadeBy | None:
    """Undo what was changed last, weights or thresholds; None where there is nothing to undo.

    The weights go back if they were replaced after the thresholds were.
    """
    versions = await list_tier_versions(session, standing.route_id)
    route = await repository.get_route_by_id_or_name(session, standing.route_id)
    if not versions or route.tiers != standing.tiers:
        return None  # changed meanwhile: it is to be judged anew
    name = standing.tiers.get("classifier")
    classifier = None if name is None else await session.get(Classifier, name)
    if (
        classifier is not None
        and classifier.updated_at > versions[0].made_at
        and await find_version_before(session, classifier) is not None
    ):
        await begin_change(session)
        left = classifier.current_version
        version = await roll_back(session, name=classifier.name, to_version=None, now=now)
        await record_version(
            session,
            route,
            made_by=MadeBy.WEIGHTS_ROLLBACK,
            now=now,
            figures={
                **figures_of(standing),
                "classifier": classifier.name,
                "left_version": left,
                "version": version.version,
            },
        )
        return MadeBy.WEIGHTS_ROLLBACK
    if find_policy_before(versions) is None:
        return None
    await roll_back_thresholds(
        session, route.id, now=now, made_by=MadeBy.ROLLBACK, figures=figures_of(standing)
    )
    return MadeBy.ROLLBACK


def figures_of(found: RouteStanding) -> dict[str, Any]:
    """Return what a change or an alarm goes by."""
    standing = found.standing
    served = standing.served
    return {
        "route": found.route,
        "from": found.changed_at.isoformat(),
        "to": found.to_at.isoformat(),
        "thresholds": found.tiers["thresholds"],
        "quality": None if served is None else round(served.value, 6),
        "quality_interval": (
            None if served is None else [round(served.low, 6), round(served.high, 6)]
        ),
        "quality_floor": found.policy["quality_floor"],
        "samples": standing.served_samples,
        "score_drift": None if standing.drift is None else round(standing.drift, 6),
        "proposed_thresholds": find_thresholds(standing, found.tiers, certain_only=False),
    }
