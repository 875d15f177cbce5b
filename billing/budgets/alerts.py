"""The outbox of warnings: which budgets crossed a percent of their amount, and who was told.

Derived from the spend as it stands, so that it does not matter whether a charge, a smaller amount
or a new budget made the crossing. The latest two windows in which anything was charged are looked at,
since the last charges of one are often stored, or noticed, when the next has begun. What has ended
is warned of by the rules that it ended under: an amount that is lowered afterwards crosses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from billing.budgets.time_zone import usable_time_zone
from billing.budgets.window import window_at
from billing.clock import from_epoch_us, to_epoch_us
from billing.ids import new_id

# One that nobody takes for so long is given up; it is in the log.
GIVE_UP_AFTER = timedelta(days=1)
_FIRST_WAIT = timedelta(seconds=30)
_MAX_WAIT = timedelta(hours=1)

_CROSSED = """
SELECT b.id, s.window_start, p.percent, b.window_kind, b.ruled_at, o.time_zone
FROM budgets b
LEFT JOIN organizations o ON o.id = b.organization_id
CROSS JOIN LATERAL (
    SELECT window_start, spent FROM budget_spend
    WHERE budget_id = b.id AND window_start <= :now ORDER BY window_start DESC LIMIT 2
) AS s
CROSS JOIN LATERAL unnest(b.warn_at_percents) AS p (percent)
WHERE b.webhook_url IS NOT NULL AND s.spent > 0 AND s.spent * 100 >= b.amount * p.percent
    AND NOT EXISTS (SELECT FROM budget_alerts a WHERE a.budget_id = b.id
        AND a.window_start = s.window_start AND a.percent = p.percent)
"""

_NOTE = """
INSERT INTO budget_alerts
    (id, budget_id, window_start, percent, amount, created_at, next_attempt_at)
SELECT :id, b.id, :window_start, :percent, b.amount, :now, :now FROM budgets b WHERE b.id = :budget_id
ON CONFLICT (budget_id, window_start, percent) DO NOTHING
"""

_FORGET = """
DELETE FROM budget_alerts a USING budgets b, budget_spend s
WHERE b.id = :budget_id AND a.budget_id = b.id AND a.window_start >= :since
    AND s.budget_id = a.budget_id AND s.window_start = a.window_start
    AND s.spent * 100 < b.amount * a.percent
"""

_TAKE = """
WITH due AS (
    SELECT a.id FROM budget_alerts a JOIN budgets b ON b.id = a.budget_id
    WHERE a.sent_at IS NULL AND a.next_attempt_at <= :now AND a.created_at > :oldest
        AND b.webhook_url IS NOT NULL
    ORDER BY a.next_attempt_at LIMIT :limit FOR UPDATE OF a SKIP LOCKED
), taken AS (
    UPDATE budget_alerts a SET attempts = a.attempts + 1,
        next_attempt_at = :now + least(:max_wait, :first_wait * power(2, least(a.attempts, 20)))
    FROM due WHERE a.id = due.id RETURNING a.*
)
SELECT t.id, t.window_start, t.percent, t.attempts, b.id AS budget_id, b.name, b.scope,
    b.scope_id, b.window_kind, t.amount, b.currency, b.is_hard, b.webhook_url,
    coalesce(s.spent, 0) AS spent
FROM taken t
JOIN budgets b ON b.id = t.budget_id
LEFT JOIN budget_spend s ON s.budget_id = t.budget_id AND s.window_start = t.window_start
"""


@dataclass(frozen=True, slots=True)
class DueAlert:
    """One warning to send now; ``attempts`` counts this one too."""

    id: str
    window_start: datetime
    percent: int
    attempts: int
    budget_id: str
    name: str
    scope: str
    scope_id: str
    window_kind: str
    amount: Decimal
    currency: str
    is_hard: bool
    webhook_url: str
    spent: Decimal


async def note_crossings(session: AsyncSession, *, now: datetime) -> int:
    """Put what was crossed and not noted yet into the outbox; return how much that was."""
    rows = (await session.execute(text(_CROSSED), {"now": now})).all()
    crossed = sorted(
        (budget_id, window_start, percent)
        for budget_id, window_start, percent, kind, ruled_at, zone in rows
        if _is_to_be_told(_end_of(window_start, kind, zone), ruled_at, now)
    )
    for budget_id, window_start, percent in crossed:
        await session.execute(
            text(_NOTE),
            {
                "id": new_id("alr"),
                "budget_id": budget_id,
                "window_start": window_start,
                "percent": percent,
                "now": now,
            },
        )
    return len(crossed)


def _end_of(window_start: datetime, kind: str, time_zone: str | None) -> datetime | None:
    """Return the end of a window; None: it has none."""
    window = window_at(kind, usable_time_zone(time_zone or "UTC"), to_epoch_us(window_start))
    return None if window.end_us is None else from_epoch_us(window.end_us)


def _is_to_be_told(end: datetime | None, ruled_at: datetime, now: datetime) -> bool:
    """Tell whether a window's crossing is news, and one of the rules that it ended under."""
    return end is None or now < end or (ruled_at < end and now - end < GIVE_UP_AFTER)


async def forget_uncrossed(session: AsyncSession, budget_id: str, *, since: datetime) -> None:
    """Forget the alerts of what a larger amount has made uncrossed: it may be crossed again.

    ``since``: the start of the window that runs. What has ended stays crossed, and is told.
    """
    await session.execute(text(_FORGET), {"budget_id": budget_id, "since": since})


async def take_due_alerts(
    session: AsyncSession, *, now: datetime, limit: int
) -> Sequence[DueAlert]:
    """Return alerts to send, ours until their next attempt is due; of two callers one gets each.

    The wait grows from half a minute to an hour. Whoever takes one and dies loses nothing.
    """
    rows = await session.execute(
        text(_TAKE),
        {
            "now": now,
            "oldest": now - GIVE_UP_AFTER,
            "limit": limit,
            "first_wait": _FIRST_WAIT,
            "max_wait": _MAX_WAIT,
        },
    )
    return [DueAlert(*row) for row in rows]


async def mark_sent(session: AsyncSession, alert_id: str, *, now: datetime) -> None:
    """Note that the alert was taken by its receiver."""
    await session.execute(
        text("UPDATE budget_alerts SET sent_at = :now WHERE id = :id"), {"id": alert_id, "now": now}
    )
