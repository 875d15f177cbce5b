"""The outbox of shadow alarms: what is wrong with a route's tiers now, and whether it was told. SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, select, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from billing.advisory_locks import LOCK_SPACE, LockNumber
from billing.ids import new_id
from billing.shadow.models import ShadowAlarm

_FIRST_WAIT = timedelta(seconds=30)
_MAX_WAIT = timedelta(hours=1)

_NOTE = """
INSERT INTO shadow_alarms (route_id, kind, id, since_at, figures, next_attempt_at)
VALUES (:route_id, :kind, :id, :now, :figures, :now)
ON CONFLICT (route_id, kind) DO UPDATE SET figures = excluded.figures
"""

_TAKE = """
WITH due AS (
    SELECT id FROM shadow_alarms WHERE sent_at IS NULL AND next_attempt_at <= :now
    FOR UPDATE SKIP LOCKED
)
UPDATE shadow_alarms a SET attempts = a.attempts + 1,
    next_attempt_at = :now + least(CAST(:max_wait AS interval),
        CAST(:first_wait AS interval) * power(2, least(a.attempts, 20)))
FROM due WHERE a.id = due.id
RETURNING a.id, a.route_id, a.kind, a.since_at, a.figures, a.attempts
"""


@dataclass(frozen=True, slots=True)
class DueShadowAlarm:
    """One alarm to send now; ``attempts`` counts this one too."""

    id: str
    route_id: str
    kind: str
    since_at: datetime
    figures: dict[str, Any]
    attempts: int


async def try_shadow_turn(session: AsyncSession) -> bool:
    """Take the turn at shadow evaluation until this transaction ends, unless another has it."""
    taken = await session.scalar(
        text("SELECT pg_try_advisory_xact_lock(:space, :number)"),
        {"space": LOCK_SPACE, "number": LockNumber.SHADOW.value},
    )
    return bool(taken)


async def note_shadow_alarms(
    session: AsyncSession, found: Mapping[tuple[str, str], dict[str, Any]], *, now: datetime
) -> None:
    """Keep an alarm for each of these routes and kinds, with its figures, and for no other."""
    keys = sorted(found)
    await session.execute(
        text(
            "DELETE FROM shadow_alarms WHERE NOT (route_id, kind) IN"
            " (SELECT * FROM unnest(CAST(:routes AS text[]), CAST(:kinds AS text[])))"
        ),
        {"routes": [key[0] for key in keys], "kinds": [key[1] for key in keys]},
    )
    statement = text(_NOTE).bindparams(bindparam("figures", type_=JSONB))
    for route_id, kind in keys:
        await session.execute(
            statement,
            {
                "route_id": route_id,
                "kind": kind,
                "id": new_id("alr"),
                "now": now,
                "figures": found[route_id, kind],
            },
        )


async def list_shadow_alarms(session: AsyncSession, route_id: str) -> Sequence[ShadowAlarm]:
    """Return what is wrong with a route now."""
    wanted = select(ShadowAlarm).where(ShadowAlarm.route_id == route_id)
    return (await session.scalars(wanted.order_by(ShadowAlarm.kind))).all()


async def take_due_shadow_alarms(
    session: AsyncSession, *, now: datetime
) -> Sequence[DueShadowAlarm]:
    """Return unsent alarms, ours until their next attempt is due."""
    rows = await session.execute(
        text(_TAKE), {"now": now, "first_wait": _FIRST_WAIT, "max_wait": _MAX_WAIT}
    )
    return [DueShadowAlarm(*row) for row in rows]


async def mark_shadow_alarm_sent(session: AsyncSession, alarm_id: str, *, now: datetime) -> None:
    """Note that the alarm was taken by its receiver."""
    await session.execute(
        text("UPDATE shadow_alarms SET sent_at = :now WHERE id = :id"), {"id": alarm_id, "now": now}
    )
