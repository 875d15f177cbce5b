"""Reads an organization's grants and the charges that they may pay, for both kinds of connection.

The control plane asks through SQLAlchemy's connection, the worker through psycopg's cursor; the
statements are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import psycopg
from sqlalchemy.ext.asyncio import AsyncSession

from billing.budgets.credit import (
    CreditState,
    DatedCharge,
    Grant,
    burn,
    cut_spans,
    hour_of,
)

# Whole hours from what projects owe, which are their events' sums and few rows; hours that a grant
# cuts by their events. One statement, one moment.
_CHARGES = """
SELECT hour AS at, sum(charged_amount) FROM ledger_project_hours
WHERE hour >= %(first)s AND hour <> ALL(%(cut_hours)s::timestamptz[])
    AND organization_id = %(organization_id)s AND currency = %(currency)s
GROUP BY hour HAVING sum(charged_amount) <> 0
UNION ALL
SELECT s.begins_at, sum(e.charge)
FROM unnest(%(begins)s::timestamptz[], %(ends)s::timestamptz[]) AS s (begins_at, ends_at)
JOIN usage_events e ON e.started_at >= s.begins_at AND e.started_at < s.ends_at
WHERE e.organization_id = %(organization_id)s AND e.currency = %(currency)s AND e.charge <> 0
GROUP BY 1
"""
_GRANTS = """
SELECT id, amount, priority, created_at, expires_at FROM credit_grants
WHERE organization_id = %(organization_id)s AND currency = %(currency)s ORDER BY id
"""


async def read_credit(
    session: AsyncSession, organization_id: str, currency: str, *, now: datetime
) -> CreditState:
    """Return how the organization's credit in this currency stands."""
    connection = await session.connection()
    wanted = {"organization_id": organization_id, "currency": currency}
    found = (await connection.exec_driver_sql(_GRANTS, wanted)).all()
    grants = [Grant(*tuple(row)) for row in found]
    if not grants:
        return burn((), (), now=now)
    rows = await connection.exec_driver_sql(_CHARGES, {**wanted, **_spans_of(grants)})
    return _burn_rows(grants, rows, now)


def load_credit(
    cursor: psycopg.Cursor[Any], organization_id: str, currency: str, *, now: datetime
) -> CreditState:
    """Like :func:`read_credit`, on the worker's kind of connection."""
    wanted = {"organization_id": organization_id, "currency": currency}
    grants = [Grant(*row) for row in cursor.execute(_GRANTS.encode(), wanted)]
    if not grants:
        return burn((), (), now=now)
    cursor.execute(_CHARGES.encode(), {**wanted, **_spans_of(grants)})
    return _burn_rows(grants, cursor, now)


def _spans_of(grants: Sequence[Grant]) -> dict[str, Any]:
    spans = cut_spans(grants)
    return {
        "first": min(hour_of(grant.created_at) for grant in grants),
        "cut_hours": sorted({hour_of(begin) for begin, _ in spans}),
        "begins": [begin for begin, _ in spans],
        "ends": [end for _, end in spans],
    }


def _burn_rows(
    grants: Sequence[Grant], rows: Iterable[Sequence[Any]], now: datetime
) -> CreditState:
    return burn(grants, [DatedCharge(row[0], row[1]) for row in rows], now=now)
