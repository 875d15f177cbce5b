"""What shadow evaluation and clients have said of a route's tiers, and what that has cost. SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

# A client's word replaces what a comparison said of the answer that the client got.
_OBSERVED = """
(SELECT s.tier_score, s.served_tier, s.lower_tier, s.upper_tier, s.lower_quality, s.upper_quality,
    s.lower_charge, s.upper_charge, f.score AS feedback, s.scored_at AS at
FROM shadow_scores s
LEFT JOIN feedback f ON f.project_id = s.project_id AND f.request_id = s.request_id
WHERE s.requested_route_id = :route_id AND s.scored_at >= :from_at AND s.scored_at < :to_at
    AND s.method = ANY(CAST(:methods AS text[]))
    AND (CAST(:project_id AS text) IS NULL OR s.project_id = :project_id)
ORDER BY s.scored_at DESC LIMIT :most)
UNION ALL
(SELECT e.tier_score::double precision, e.tier, NULL, NULL, NULL, NULL, NULL, NULL, f.score,
    f.given_at
FROM feedback f
JOIN usage_events e ON e.event_id = 'evt_' || substr(f.request_id, 5)
    AND e.project_id = f.project_id
WHERE f.given_at >= :from_at AND f.given_at < :to_at
    AND e.started_at >= :from_at AND e.started_at < :to_at
    AND e.requested_route_id = :route_id AND e.tier_score IS NOT NULL
    AND (CAST(:project_id AS text) IS NULL OR f.project_id = :project_id)
    AND NOT EXISTS (SELECT FROM shadow_scores s
        WHERE s.project_id = f.project_id AND s.request_id = f.request_id)
ORDER BY f.given_at DESC LIMIT :most)
"""

# Scores are about -1 to 1; what is beyond lies in the outermost cells.
_CELLS = """
SELECT greatest(0, least(:cells + 1, width_bucket(tier_score, -1, 1, :cells))),
    count(*)::bigint
FROM shadow_scores
WHERE requested_route_id = :route_id AND scored_at >= :from_at AND scored_at < :to_at
GROUP BY 1
"""

# The budget of a day knows nothing of when the tiers have changed.
_COSTS = """
SELECT currency, kind,
    count(*) FILTER (WHERE started_at >= :from_at)::bigint AS calls,
    count(*) FILTER (WHERE started_at >= :from_at AND status <> 'completed')::bigint
        AS failed_calls,
    count(*) FILTER (WHERE started_at >= :from_at AND charge IS NULL)::bigint AS unrated_calls,
    coalesce(sum(charge) FILTER (WHERE started_at >= :from_at), 0) AS cost,
    coalesce(sum(charge) FILTER (WHERE started_at >= :today_at), 0) AS cost_today
FROM shadow_calls
WHERE requested_route_id = :route_id AND started_at >= least(:from_at, :today_at)
    AND started_at < :to_at AND kind <> 'cascade'
GROUP BY 1, 2 ORDER BY 1, 2
"""

SCORE_CELLS = 100


@dataclass(frozen=True, slots=True)
class Observed:
    """One request: compared (``lower_tier`` and what goes with it are told), or only judged by its client."""

    tier_score: float
    served_tier: str
    lower_tier: str | None
    upper_tier: str | None
    lower_quality: float | None
    upper_quality: float | None
    lower_charge: Decimal | None
    upper_charge: Decimal | None
    feedback: float | None
    at: datetime


@dataclass(frozen=True, slots=True)
class ShadowCosts:
    """What calls of one kind have cost, in one currency."""

    currency: str
    kind: str
    calls: int
    failed_calls: int
    unrated_calls: int
    cost: Decimal
    cost_today: Decimal


async def list_observed(
    session: AsyncSession,
    *,
    route_id: str,
    from_at: datetime,
    to_at: datetime,
    methods: Sequence[str],
    most: int,
    project_id: str | None = None,
) -> list[Observed]:
    """Return the newest of a route's observations in [from_at, to_at), ``most`` of each kind.

    ``methods``: scores of other methods are of another scale.
    """
    parameters = {
        "route_id": route_id,
        "from_at": from_at,
        "to_at": to_at,
        "methods": list(methods),
        "most": most,
        "project_id": project_id,
    }
    return [Observed(*row) for row in await session.execute(text(_OBSERVED), parameters)]


async def count_scores(
    session: AsyncSession, *, route_id: str, from_at: datetime, to_at: datetime
) -> list[int]:
    """Return how many of the route's samples had a score in each of equal cells from -1 to 1."""
    parameters: dict[str, Any] = {
        "route_id": route_id,
        "from_at": from_at,
        "to_at": to_at,
        "cells": SCORE_CELLS,
    }
    counts = [0] * (SCORE_CELLS + 2)
    for cell, count in await session.execute(text(_CELLS), parameters):
        counts[cell] = count
    return counts


async def sum_costs(
    session: AsyncSession,
    *,
    route_id: str,
    from_at: datetime,
    to_at: datetime,
    today_at: datetime,
) -> list[ShadowCosts]:
    """Return what shadow evaluation of the route has cost in [from_at, to_at), and that day.

    ``today_at`` is the day's beginning, before or after ``from_at``.
    """
    parameters = {
        "route_id": route_id,
        "from_at": from_at,
        "to_at": to_at,
        "today_at": today_at,
    }
    return [ShadowCosts(*row) for row in await session.execute(text(_COSTS), parameters)]
