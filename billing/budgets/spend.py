"""Adds what a transaction charged (``batch_deltas``) to the spend of the budgets that it counts for.

Which window a charge belongs to is asked of :mod:`billing.budgets.window` and never computed in
SQL: the two disagree where a local midnight comes twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import psycopg

from billing.advisory_locks import LOCK_SPACE, LockNumber
from billing.budgets.time_zone import usable_time_zone
from billing.budgets.window import window_at
from billing.clock import from_epoch_us, to_epoch_us
from billing.money import EXACT, ZERO

# Local midnights lie on quarters of an hour of UTC, in every zone since 1972.
QUARTER = timedelta(minutes=15)

_LOCK_SHARED = "SELECT pg_advisory_xact_lock_shared(%s, %s)"

# The budgets of a key are its lineage's, the first key's of its rotations.
_CHARGED = """
SELECT b.id, b.window_kind, coalesce(o.time_zone, 'UTC'), b.created_at, d.quarter, sum(d.charge)
FROM batch_deltas d
LEFT JOIN api_keys k ON k.id = d.api_key_id
CROSS JOIN LATERAL (VALUES ('key', coalesce(k.lineage_id, d.api_key_id)), ('project', d.project_id),
    ('organization', d.organization_id)) AS s (scope, scope_id)
JOIN budgets b ON b.scope = s.scope AND b.scope_id = s.scope_id AND b.currency = d.currency
LEFT JOIN organizations o ON o.id = b.organization_id
GROUP BY 1, 2, 3, 4, 5 HAVING sum(d.charge) <> 0
"""

_ADD = """
INSERT INTO budget_spend AS s (budget_id, window_start, spent)
SELECT * FROM unnest(%s::text[], %s::timestamptz[], %s::numeric[])
ON CONFLICT (budget_id, window_start) DO UPDATE SET spent = s.spent + excluded.spent
"""


class CountedBudget(NamedTuple):
    """What decides which charges count for a budget, and in which window."""

    budget_id: str
    window_kind: str
    time_zone: str
    created_at: datetime  # it counts from the window on in which it was made

    def find_window_start(self, at: datetime) -> datetime | None:
        """Return the start of the window that holds ``at``; None when it is before the first."""
        start_us = self._start_us(at)
        return None if start_us < self._first_us else from_epoch_us(start_us)

    @property
    def first_window_start(self) -> datetime:
        """The start of the window in which the budget was made."""
        return from_epoch_us(self._first_us)

    @property
    def _first_us(self) -> int:
        return self._start_us(self.created_at)

    def _start_us(self, at: datetime) -> int:
        time_zone = usable_time_zone(self.time_zone)
        return window_at(self.window_kind, time_zone, to_epoch_us(at)).start_us


SpendKey = tuple[str, datetime]  # budget id, start of the window


def add_deltas_to_budgets(cursor: psycopg.Cursor[Any]) -> None:
    """Add the charges of the transaction (``batch_deltas``) to ``budget_spend``.

    Last of the sums: the lock that it takes is held until the commit.
    """
    # A statement of its own: the next one must see what was committed while this one waited.
    cursor.execute(_LOCK_SHARED, (LOCK_SPACE, LockNumber.BUDGET_SET.value))
    cursor.execute(_CHARGED)
    charged = cursor.fetchall()
    if charged:
        write_spend(cursor, sum_by_window((CountedBudget(*row[:4]), *row[4:]) for row in charged))


def sum_by_window(
    charges: Iterable[tuple[CountedBudget, datetime, Decimal]],
) -> dict[SpendKey, Decimal]:
    """Return the charges of quarters of an hour (budget, quarter, amount) by budget and window."""
    sums: dict[SpendKey, Decimal] = {}
    for budget, quarter, amount in charges:
        start = budget.find_window_start(quarter)
        if start is not None:
            key = (budget.budget_id, start)
            sums[key] = EXACT.add(sums.get(key, ZERO), amount)
    return sums


def write_spend(cursor: psycopg.Cursor[Any], sums: Mapping[SpendKey, Decimal]) -> None:
    """Add ``sums`` to the rows, in the order of their key, like every writer of them."""
    keys = sorted(sums)
    cursor.execute(
        _ADD, ([key[0] for key in keys], [key[1] for key in keys], [sums[key] for key in keys])
    )
