"""What each project owes per hour, beside what of it is in the ledger.

The row is the lock: whoever posts a project's hour holds its row, so that an amount is posted once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import psycopg

_KEY = "hour, organization_id, project_id, currency"

# In key order, like every writer of these rows.
_ADD = f"""
INSERT INTO ledger_project_hours AS h ({_KEY}, charged_amount)
SELECT {_KEY}, sum(charge) FROM batch_deltas
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
    cursor.execute(
        f"WITH pending AS MATERIALIZED (SELECT {_KEY}, charged_amount - posted_amount AS amount"  # noqa: S608
        " FROM ledger_project_hours WHERE posted_amount <> charged_amount"
        " ORDER BY 1, 2, 3, 4 LIMIT %s FOR UPDATE)"
        " UPDATE ledger_project_hours h SET posted_amount = h.posted_amount + p.amount"
        " FROM pending p WHERE h.hour = p.hour AND h.organization_id = p.organization_id"
        " AND h.project_id = p.project_id AND h.currency = p.currency"
        " RETURNING h.hour, h.organization_id, h.project_id, h.currency, p.amount",
        (limit,),
    )
    return sorted(
        (PendingAmount(*row) for row in cursor),
        key=lambda pending: (
            pending.hour,
            pending.organization_id,
            pending.project_id,
            pending.currency,
        ),
    )
