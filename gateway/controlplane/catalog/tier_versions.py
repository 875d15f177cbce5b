"""Every tier policy that a route has had, who made it and why: nothing in it is ever changed.

It is what an automatic change is audited by, and what a route goes back to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from gateway.controlplane.catalog.models import Route, TierPolicyVersion
from gateway.controlplane.database import WriteSession


class MadeBy(StrEnum):
    """What made a version."""

    ADMIN = "admin"
    PROPOSAL = "proposal"  # the threshold that shadow evaluation proposed, taken by itself
    ROLLBACK = "rollback"  # quality fell below the floor
    WEIGHTS_ROLLBACK = "weights_rollback"  # the same; the policy stayed, its classifier went back


async def record_version(
    session: WriteSession,
    route: Route,
    *,
    made_by: MadeBy,
    now: datetime,
    figures: Mapping[str, Any] | None = None,
) -> None:
    """Note the policy that ``route`` has from now on; None of it: its tiers were taken away."""
    newest = select(func.max(TierPolicyVersion.version)).where(
        TierPolicyVersion.route_id == route.id
    )
    number = await session.scalar(newest) or 0
    session.add(
        TierPolicyVersion(
            route_id=route.id,
            version=number + 1,
            policy=route.tiers,
            made_by=made_by.value,
            figures=None if figures is None else dict(figures),
            made_at=now,
        )
    )


async def list_tier_versions(
    session: AsyncSession, route_id: str, *, limit: int = 50
) -> Sequence[TierPolicyVersion]:
    """Return a route's policies, the one in effect first."""
    statement = (
        select(TierPolicyVersion)
        .where(TierPolicyVersion.route_id == route_id)
        .order_by(TierPolicyVersion.version.desc())
        .limit(limit)
    )
    return (await session.scalars(statement)).all()


def find_policy_before(versions: Sequence[TierPolicyVersion]) -> dict[str, Any] | None:
    """Return the last policy with other thresholds than those in effect, for the same tiers.

    ``versions``: the newest first. One that a rollback left is not returned to.
    """
    if not versions or versions[0].policy is None:
        return None
    current = versions[0].policy
    failed = {
        str(one.figures["left_thresholds"])
        for one in versions
        if one.figures is not None and "left_thresholds" in one.figures
    }
    for one in versions[1:]:
        policy = one.policy
        if policy is None or policy["tiers"] != current["tiers"]:
            return None
        if (
            policy["thresholds"] != current["thresholds"]
            and str(policy["thresholds"]) not in failed
        ):
            return {**current, "thresholds": policy["thresholds"]}
    return None
