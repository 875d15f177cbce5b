"""The spend of a new budget, from what is stored already, so that it can neither miss nor double.

Whoever stores or rates events holds the lock :data:`LockNumber.BUDGET_SET` shared from reading the
budgets until its commit; whoever adds or removes a budget holds it alone until its own commit. So
a transaction that did not see the new budget has committed, and is in the sums made here; one that
comes later sees the budget and adds its own charges.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from billing.advisory_locks import LOCK_SPACE, LockNumber
from billing.budgets.models import BudgetSpend
from billing.budgets.spend import QUARTER, CountedBudget, sum_by_window

_HOUR = timedelta(hours=1)
# Which rows a scope counts: of a key those of its whole lineage.
_COUNTED = {
    "key": "api_key_id IN (SELECT :scope_id UNION"
    " SELECT id FROM api_keys WHERE lineage_id = :scope_id)",
    "project": "project_id = :scope_id",
    "organization": "organization_id = :scope_id",
}

# Whole hours from the rollups, which are those events' sums: years of them are few rows.
_HOURS = """
SELECT hour, sum(charge) AS charged FROM usage_rollups_hourly
WHERE hour >= :first AND {counted} AND currency = :currency
GROUP BY hour HAVING sum(charge) <> 0
"""
_QUARTERS = """
SELECT date_bin('15 minutes', started_at, timestamptz '1970-01-01 00:00:00+00') AS quarter,
    sum(charge) AS charged
FROM usage_events
WHERE started_at >= :hour AND started_at < :end AND {counted} AND currency = :currency
    AND charge <> 0
GROUP BY 1
"""


async def lock_budget_set(session: AsyncSession) -> None:
    """Keep every other transaction from reading or changing the set of budgets until we commit."""
    await session.execute(
        text("SELECT pg_advisory_xact_lock(:space, :number)"),
        {"space": LOCK_SPACE, "number": LockNumber.BUDGET_SET.value},
    )


async def fill_spend(
    session: AsyncSession, budget: CountedBudget, *, scope: str, scope_id: str, currency: str
) -> None:
    """Write what was charged in the budget's windows so far.

    The transaction must hold the lock (:func:`lock_budget_set`) since before this statement.
    """
    counted = _COUNTED[scope]
    wanted = {"scope_id": scope_id, "currency": currency}
    first = budget.first_window_start.replace(minute=0, second=0, microsecond=0)
    hours = await session.execute(text(_HOURS.format(counted=counted)), {**wanted, "first": first})
    charges: list[tuple[CountedBudget, datetime, Decimal]] = []
    for hour, charged in hours.all():
        last_quarter = hour + _HOUR - QUARTER
        if budget.find_window_start(hour) == budget.find_window_start(last_quarter):
            charges.append((budget, hour, charged))
            continue
        quarters = await session.execute(
            text(_QUARTERS.format(counted=counted)), {**wanted, "hour": hour, "end": hour + _HOUR}
        )
        charges += [(budget, quarter, amount) for quarter, amount in quarters.all()]
    session.add_all(
        BudgetSpend(budget_id=budget_id, window_start=start, spent=spent)
        for (budget_id, start), spent in sorted(sum_by_window(charges).items())
    )
    await session.flush()
