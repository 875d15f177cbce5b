"""What could not be charged or stored, and why: written by the worker, listed for an admin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from billing.charging.models import DeadLetter
from billing.charging.reason import DeadLetterReason
from billing.ids import new_id


@dataclass(frozen=True, slots=True)
class NewDeadLetter:
    """A dead letter about to be written, see :class:`billing.charging.models.DeadLetter`."""

    reason: DeadLetterReason
    detail: str
    event_id: str | None = None
    event_started_at: datetime | None = None
    organization_id: str | None = None
    project_id: str | None = None
    route: str | None = None
    segment: int | None = None
    byte_offset: int | None = None
    payload: str | None = None


def insert_dead_letters(
    cursor: psycopg.Cursor[Any],
    journal_id: str,
    letters: Sequence[NewDeadLetter],
    *,
    now: datetime,
) -> None:
    """Write ``letters`` in the caller's transaction; one that is there already stays as it is."""
    cursor.executemany(
        "INSERT INTO dead_letters (id, reason, event_id, event_started_at, organization_id,"
        " project_id, route, journal_id, segment, byte_offset, detail, payload, created_at)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (event_id, reason) WHERE event_id IS NOT NULL DO NOTHING",
        [
            (
                new_id("dead"),
                letter.reason,
                letter.event_id,
                letter.event_started_at,
                letter.organization_id,
                letter.project_id,
                letter.route,
                journal_id,
                letter.segment,
                letter.byte_offset,
                letter.detail,
                letter.payload,
                now,
            )
            for letter in letters
        ],
    )


async def list_dead_letters(
    session: AsyncSession, *, limit: int = 100, include_resolved: bool = False
) -> Sequence[DeadLetter]:
    """Return the newest dead letters; those that were put right only when asked for."""
    statement = select(DeadLetter).order_by(DeadLetter.created_at.desc(), DeadLetter.id.desc())
    if not include_resolved:
        statement = statement.where(DeadLetter.resolved_at.is_(None))
    return (await session.scalars(statement.limit(limit))).all()


async def count_dead_letters(session: AsyncSession) -> dict[str, int]:
    """Return how many unresolved dead letters there are by reason."""
    rows = await session.execute(
        select(DeadLetter.reason, func.count().label("letters"))
        .where(DeadLetter.resolved_at.is_(None))
        .group_by(DeadLetter.reason)
    )
    return {row.reason: row.letters for row in rows}
