"""Which organizations' credit has changed although nobody called: a grant expired, or a charge from
before its expiry came late."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from billing.budgets.credit_rule import IS_ON, is_amount_stale

# What is stored or rated later than this after an expiry counts at the next change of the credit.
_LATE_WITHIN = timedelta(days=7)

_JUST_EXPIRED = f"""
SELECT o.id FROM organizations o WHERE {IS_ON} AND EXISTS (
    SELECT FROM credit_grants g WHERE g.organization_id = o.id
        AND g.expires_at <= :now AND g.expires_at > o.credit_counted_at)
ORDER BY 1
"""  # noqa: S608  # constants of ours
_LATELY_EXPIRED = f"""
SELECT o.id FROM organizations o WHERE {IS_ON} AND EXISTS (
    SELECT FROM credit_grants g WHERE g.organization_id = o.id
        AND g.expires_at <= :now AND g.expires_at > :since)
ORDER BY 1
"""  # noqa: S608  # constants of ours


async def list_just_expired(session: AsyncSession, *, now: datetime) -> Sequence[str]:
    """Return the organizations a grant of which has expired since their credit was computed."""
    return (await session.scalars(text(_JUST_EXPIRED), {"now": now})).all()


async def list_changed_late(session: AsyncSession, *, now: datetime) -> Sequence[str]:
    """Return the organizations whose expired grants have paid more than is known of them."""
    found = await session.scalars(text(_LATELY_EXPIRED), {"now": now, "since": now - _LATE_WITHIN})
    return [one for one in found.all() if await is_amount_stale(session, one, now=now)]
