"""Proves that the spend of every budget and window is the sum of its events' charges."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import psycopg

from billing.budgets.spend import CountedBudget, SpendKey, sum_by_window
from billing.money import EXACT, ZERO, format_amount

_EVENTS = """
WITH quarters AS (
    SELECT organization_id, project_id, api_key_id, currency,
        date_bin('15 minutes', started_at, timestamptz '1970-01-01 00:00:00+00') AS quarter,
        sum(charge) AS charged
    FROM usage_events WHERE charge <> 0 GROUP BY 1, 2, 3, 4, 5
)
SELECT b.id, b.window_kind, coalesce(o.time_zone, 'UTC'), b.created_at, q.quarter, sum(q.charged)
FROM quarters q
LEFT JOIN api_keys k ON k.id = q.api_key_id
CROSS JOIN LATERAL (VALUES ('key', coalesce(k.lineage_id, q.api_key_id)), ('project', q.project_id),
    ('organization', q.organization_id)) AS s (scope, scope_id)
JOIN budgets b ON b.scope = s.scope AND b.scope_id = s.scope_id AND b.currency = q.currency
LEFT JOIN organizations o ON o.id = b.organization_id
GROUP BY 1, 2, 3, 4, 5
"""
_SPEND = "SELECT budget_id, window_start, spent FROM budget_spend"
_MAX_NAMED = 20


@dataclass(frozen=True, slots=True)
class SpendProof:
    """What was compared; ``differences`` names up to 20 windows that do not agree."""

    windows: int
    from_events: Decimal
    recorded: Decimal
    differing: int
    differences: tuple[str, ...]


def prove_spend(connection: psycopg.Connection[Any]) -> SpendProof:
    """Compare ``budget_spend`` with the events, in the caller's transaction."""
    with connection.cursor() as cursor:
        events = sum_by_window(
            (CountedBudget(*row[:4]), *row[4:]) for row in cursor.execute(_EVENTS.encode())
        )
        spend: dict[SpendKey, Decimal] = {
            (row[0], row[1]): row[2] for row in cursor.execute(_SPEND.encode())
        }
    keys = sorted(events.keys() | spend.keys())
    differing = [key for key in keys if events.get(key, ZERO) != spend.get(key, ZERO)]
    return SpendProof(
        windows=len(keys),
        from_events=_total(events),
        recorded=_total(spend),
        differing=len(differing),
        differences=tuple(
            _difference_text(key[0], key[1], events.get(key), spend.get(key))
            for key in differing[:_MAX_NAMED]
        ),
    )


def _total(sums: dict[SpendKey, Decimal]) -> Decimal:
    total = ZERO
    for amount in sums.values():
        total = EXACT.add(total, amount)
    return total


def _difference_text(
    budget_id: str, window_start: datetime, events: Decimal | None, spent: Decimal | None
) -> str:
    return (
        f"budget {budget_id}, window from {window_start:%Y-%m-%dT%H:%M}Z:"
        f" events {format_amount(events or ZERO)}, spent {format_amount(spent or ZERO)}"
    )
