"""The posting job of credit: grants, what they paid, and what expired of them.

What ought to be in the ledger is computed from the grants and the charges each time, and the
difference to what is noted as posted is written, so that a charge that comes late moves it right.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import psycopg

from billing.budgets.credit import CreditState
from billing.budgets.read_credit import load_credit
from billing.ledger.entry import Posting
from billing.ledger.service import write_postings
from billing.ledger.templates import credit_burn, credit_expiry, credit_grant
from billing.money import EXACT, ZERO
from billing.retry import retry_conflicts

_PENDING = """
SELECT DISTINCT g.organization_id FROM credit_grants g
LEFT JOIN credit_ledger_marks m ON m.organization_id = g.organization_id
LEFT JOIN budget_spend s ON s.budget_id = 'crd_' || g.organization_id
WHERE m.organization_id IS NULL OR g.posted_amount = 0 OR coalesce(s.spent, 0) <> m.spent
    OR (g.expires_at <= %(now)s AND g.expires_at > m.posted_at)
ORDER BY 1
"""
# In a statement of its own: the next one sees what whoever held them has committed.
_LOCK = "SELECT FROM credit_grants WHERE organization_id = %s ORDER BY id FOR NO KEY UPDATE"
_CURRENCIES = "SELECT DISTINCT currency FROM credit_grants WHERE organization_id = %s ORDER BY 1"
_GRANTS = """
SELECT id, currency, created_at, expires_at, amount, posted_amount, forfeited_amount
FROM credit_grants WHERE organization_id = %s ORDER BY id
"""
_HOURS = """
SELECT hour, posted_amount FROM credit_burn_hours WHERE organization_id = %s AND currency = %s
"""
_NOTE_HOUR = """
INSERT INTO credit_burn_hours (organization_id, currency, hour, posted_amount)
VALUES (%s, %s, %s, %s)
ON CONFLICT (organization_id, currency, hour) DO UPDATE SET posted_amount = excluded.posted_amount
"""
# Before the charges are read: what is stored meanwhile makes the next run look again.
_SPENT = "SELECT spent FROM budget_spend WHERE budget_id = 'crd_' || %s"
_MARK = """
INSERT INTO credit_ledger_marks VALUES (%s, %s, %s) ON CONFLICT (organization_id)
DO UPDATE SET spent = excluded.spent, posted_at = excluded.posted_at
"""


def post_pending_credit(
    connection: psycopg.Connection[Any], *, clock: Callable[[], datetime]
) -> int:
    """Post what is pending of every organization's credit; return how many transactions.

    May run beside other callers; each organization's credit is one transaction of the database.
    """
    now = clock()
    with connection.transaction(), connection.cursor() as cursor:
        pending = [row[0] for row in cursor.execute(_PENDING.encode(), {"now": now})]
    posted = 0
    for organization_id in pending:
        posted += _post_one(connection, organization_id, now)
    return posted


def _post_one(connection: psycopg.Connection[Any], organization_id: str, now: datetime) -> int:
    def transact() -> int:
        with connection.transaction(), connection.cursor() as cursor:
            return _post_organization(cursor, organization_id, now)

    return retry_conflicts(transact)


def _post_organization(cursor: psycopg.Cursor[Any], organization_id: str, now: datetime) -> int:
    cursor.execute(_LOCK, (organization_id,))
    spent = cursor.execute(_SPENT, (organization_id,)).fetchone()
    currencies = cursor.execute(_CURRENCIES, (organization_id,)).fetchall()
    states = [(row[0], load_credit(cursor, organization_id, row[0], now=now)) for row in currencies]
    # After the charges: no grant that has paid is missing here.
    grants = cursor.execute(_GRANTS, (organization_id,)).fetchall()
    postings: list[Posting] = []
    for currency, state in states:
        mine = [row for row in grants if row[1] == currency]
        postings += _post_grants(cursor, organization_id, mine)
        postings += _post_burns(cursor, organization_id, currency, state)
        postings += _post_expiries(cursor, organization_id, mine, state)
    write_postings(cursor, postings, now=now)
    cursor.execute(_MARK, (organization_id, ZERO if spent is None else spent[0], now))
    return len(postings)


def _post_grants(
    cursor: psycopg.Cursor[Any], organization_id: str, grants: list[tuple[Any, ...]]
) -> list[Posting]:
    news = [row for row in grants if not row[5]]
    cursor.execute(
        "UPDATE credit_grants SET posted_amount = amount WHERE id = ANY(%s)",
        ([row[0] for row in news],),
    )
    return [
        credit_grant(
            organization_id=organization_id, granted_at=row[2], currency=row[1], amount=row[4]
        )
        for row in news
    ]


def _post_burns(
    cursor: psycopg.Cursor[Any], organization_id: str, currency: str, state: CreditState
) -> list[Posting]:
    burned = state.burned_by_hour()
    cursor.execute(_HOURS, (organization_id, currency))
    posted: dict[datetime, Decimal] = {row[0]: row[1] for row in cursor}
    postings = []
    for hour in sorted(burned.keys() | posted.keys()):
        amount = burned.get(hour, ZERO)
        change = EXACT.subtract(amount, posted.get(hour, ZERO))
        if change:
            cursor.execute(_NOTE_HOUR, (organization_id, currency, hour, amount))
            postings.append(
                credit_burn(
                    organization_id=organization_id, hour=hour, currency=currency, amount=change
                )
            )
    return postings


def _post_expiries(
    cursor: psycopg.Cursor[Any],
    organization_id: str,
    grants: list[tuple[Any, ...]],
    state: CreditState,
) -> list[Posting]:
    forfeited = {found.grant.id: found.forfeited for found in state.grants}
    postings = []
    for grant_id, currency, _, expires_at, _, _, posted in grants:
        # A grant made since the first look: the next run has it.
        amount = forfeited.get(grant_id, posted)
        change = EXACT.subtract(amount, posted)
        if change:
            cursor.execute(
                "UPDATE credit_grants SET forfeited_amount = %s WHERE id = %s", (amount, grant_id)
            )
            postings.append(
                credit_expiry(
                    organization_id=organization_id,
                    expired_at=expires_at,
                    currency=currency,
                    amount=change,
                )
            )
    return postings
