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

# What of a policy says who answers. It goes back together: a threshold means nothing by another
# classifier's scores.
_DECIDING = ("thresholds", "classifier", "cascade")


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
    """Return the last policy that decided otherwise than the one in effect, for the same tiers.

    ``versions``: the newest first. One that a rollback left is not returned to. A project's own
    thresholds stay, but where its classifier changes.
    """
    if not versions or versions[0].policy is None:
        return None
    current = versions[0].policy
    left = [one.figures for one in versions if one.figures is not None]
    for one in versions[1:]:
        policy = one.policy
        if policy is None or policy["tiers"] != current["tiers"]:
            return None
        deciding = deciding_of(policy)
        if deciding != deciding_of(current) and not any(_was_left(deciding, one) for one in left):
            return _decided_as(policy, current)
    return None


def deciding_of(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a policy goes back together."""
    return {name: policy.get(name) for name in _DECIDING}


def find_scale_start(versions: Sequence[TierPolicyVersion]) -> datetime | None:
    """Return since when scores and tiers have meant what they do now; None: as far back as is known.

    ``versions``: the newest first.
    """
    since: datetime | None = None
    for one in versions:
        if _scale_of(one.policy) != _scale_of(versions[0].policy):
            return since
        since = one.made_at
    return None


def _scale_of(policy: Mapping[str, Any] | None) -> tuple[Any, Any] | None:
    return None if policy is None else (policy["tiers"], policy.get("classifier"))


def _was_left(deciding: Mapping[str, Any], figures: Mapping[str, Any]) -> bool:
    """Tell whether the version with these figures was a rollback from that."""
    if "left" in figures:
        return bool(figures["left"] == deciding)
    return bool(figures.get("left_thresholds") == deciding["thresholds"])  # by an earlier release


def _decided_as(before: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    names = list(_DECIDING)
    if before.get("classifier") != current.get("classifier"):
        names.append("project_thresholds")
    kept = {name: value for name, value in current.items() if name not in names}
    return {**kept, **{name: before[name] for name in names if name in before}}
