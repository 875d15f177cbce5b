"""What each project owes per hour, beside what of it is in the ledger.

The row is the lock: whoever posts a project's hour holds its row, so that an amount is posted once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import psycopg

from billing.money import EXACT

_KEY = "hour, organization_id, project_id, currency"

# In key order, like every writer of these rows.
_ADD = f"""
INSERT INTO ledger_project_hours AS h ({_KEY}, charged_amount)
SELECT date_trunc('hour', quarter, 'UTC'), organization_id, project_id, currency, sum(charge)
FROM batch_deltas
GROUP BY 1, 2, 3, 4 HAVING sum(charge) <> 0
ORDER BY 1, 2, 3, 4
ON CONFLICT ({_KEY}) DO UPDATE SET charged_amount = h.charged_amount + excluded.charged_amount
"""  # noqa: S608  # constants of ours


@dataclass(frozen=True, slots=True)
class PendingAmount:
    """What one project's hour still has to post."""

    hour: datetime
    organization_id: str
    project_id: str
    currency: str
    amount: Decimal


def add_deltas_to_project_hours(cursor: psycopg.Cursor[Any]) -> None:
    """Add the charges of the transaction (``batch_deltas``) to what its projects owe."""
    cursor.execute(_ADD)


def take_pending(cursor: psycopg.Cursor[Any], *, limit: int) -> list[PendingAmount]:
    """Lock up to ``limit`` hours with something to post, call it posted, and return it.

    The caller writes it to the ledger in the same transaction, or all of it is undone.
    """
    # Two statements: the first waits for whoever holds a row and returns what it left there; in
    # one, the update could still see amounts from before that wait.
    cursor.execute(
        f"SELECT {_KEY}, charged_amount, posted_amount FROM ledger_project_hours"  # noqa: S608
        " WHERE posted_amount <> charged_amount ORDER BY 1, 2, 3, 4 LIMIT %s FOR UPDATE",
        (limit,),
    )
    locked = cursor.fetchall()
    if not locked:
        return []
    *keys, charged, _ = (list(column) for column in zip(*locked, strict=True))
    cursor.execute(
        "UPDATE ledger_project_hours h SET posted_amount = taken.amount"
        " FROM unnest(%s::timestamptz[], %s::text[], %s::text[], %s::text[], %s::numeric[])"
        " AS taken (hour, organization_id, project_id, currency, amount)"
        " WHERE h.hour = taken.hour AND h.organization_id = taken.organization_id"
        " AND h.project_id = taken.project_id AND h.currency = taken.currency",
        (*keys, charged),
    )
    return [
        PendingAmount(hour, organization_id, project_id, currency, EXACT.subtract(owed, posted))
        for hour, organization_id, project_id, currency, owed, posted in locked
    ]
