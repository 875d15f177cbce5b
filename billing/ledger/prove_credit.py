"""Proves that grants less burns less expiries are the balance of the prepaid-credit accounts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import psycopg

from billing.budgets.read_credit import load_credit
from billing.money import EXACT, ZERO

_ORGANIZATIONS = "SELECT DISTINCT currency, organization_id FROM credit_grants ORDER BY 1, 2"
# What is noted as posted, beside what the entries say, by currency.
_POSTED = """
WITH entries AS (
    SELECT a.currency, t.kind AS reason, a.kind, sum(e.amount) AS amount
    FROM ledger_entries e JOIN ledger_accounts a ON a.id = e.account_id
    JOIN ledger_transactions t ON t.id = e.transaction_id
    WHERE t.kind IN ('credit_grant', 'credit_burn', 'credit_expiry') OR a.kind = 'prepaid_credit'
    GROUP BY 1, 2, 3
), grants AS (
    SELECT currency, sum(amount) AS granted, sum(posted_amount) AS posted,
        sum(forfeited_amount) AS forfeited
    FROM credit_grants GROUP BY 1
), burns AS (
    SELECT currency, sum(posted_amount) AS burned FROM credit_burn_hours GROUP BY 1
), ledger AS (
    SELECT currency,
        coalesce(sum(amount) FILTER (WHERE kind = 'credit_granted'), 0) AS granted,
        coalesce(-sum(amount) FILTER (WHERE kind = 'receivable'), 0) AS burned,
        coalesce(-sum(amount) FILTER (WHERE kind = 'credit_expired'), 0) AS expired,
        coalesce(-sum(amount) FILTER (WHERE kind = 'prepaid_credit'), 0) AS balance
    FROM entries GROUP BY 1
)
SELECT currency, coalesce(g.granted, 0), coalesce(g.posted, 0), coalesce(b.burned, 0),
    coalesce(g.forfeited, 0), coalesce(l.granted, 0), coalesce(l.burned, 0),
    coalesce(l.expired, 0), coalesce(l.balance, 0)
FROM grants g FULL JOIN burns b USING (currency) FULL JOIN ledger l USING (currency) ORDER BY 1
"""
_HOURS = """
WITH posted AS (
    SELECT t.organization_id, e.currency, t.effective_at AS hour, sum(e.amount) AS amount
    FROM ledger_entries e JOIN ledger_accounts a ON a.id = e.account_id
    JOIN ledger_transactions t ON t.id = e.transaction_id
    WHERE t.kind = 'credit_burn' AND a.kind = 'prepaid_credit' GROUP BY 1, 2, 3
)
SELECT currency, count(*) FROM credit_burn_hours h
FULL JOIN posted p USING (organization_id, currency, hour)
WHERE coalesce(h.posted_amount, 0) <> coalesce(p.amount, 0) GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class CreditProof:
    """One currency: what the grants and events say, beside what was posted and the accounts."""

    currency: str
    granted: Decimal
    burned: Decimal  # from the charges
    expired: Decimal  # likewise
    granted_posted: Decimal
    burned_posted: Decimal
    expired_posted: Decimal
    balance: Decimal  # of the prepaid-credit accounts, as what may still be used
    accounts: tuple[Decimal, Decimal, Decimal]  # granted, burned, expired, by the entries
    differing: int  # hours whose entries are not what is noted
    overposted: int  # organizations with more posted as burned than was

    @property
    def is_ok(self) -> bool:
        """Whether all of it agrees; what is pending is no difference."""
        posted = (self.granted_posted, self.burned_posted, self.expired_posted)
        used = EXACT.add(self.burned_posted, self.expired_posted)
        return (
            self.accounts == posted
            and self.balance == EXACT.subtract(self.granted_posted, used)
            and self.balance >= 0
            and not self.differing
            and not self.overposted
        )


def prove_credit(connection: psycopg.Connection[Any], *, now: datetime) -> list[CreditProof]:
    """Compare grants and charges with the ledger, in the caller's transaction."""
    with connection.cursor() as cursor:
        burned: dict[str, Decimal] = {}
        expired: dict[str, Decimal] = {}
        overposted: dict[str, int] = {}
        for currency, organization_id in cursor.execute(_ORGANIZATIONS).fetchall():
            state = load_credit(cursor, organization_id, currency, now=now)
            burned[currency] = EXACT.add(burned.get(currency, ZERO), state.burned)
            expired[currency] = EXACT.add(expired.get(currency, ZERO), state.forfeited)
            if _read_burned(cursor, organization_id, currency) > state.burned:
                overposted[currency] = overposted.get(currency, 0) + 1
        differing = {row[0]: row[1] for row in cursor.execute(_HOURS.encode())}
        return [
            CreditProof(
                currency=row[0],
                granted=row[1],
                burned=burned.get(row[0], ZERO),
                expired=expired.get(row[0], ZERO),
                granted_posted=row[2],
                burned_posted=row[3],
                expired_posted=row[4],
                balance=row[8],
                accounts=row[5:8],
                differing=differing.get(row[0], 0),
                overposted=overposted.get(row[0], 0),
            )
            for row in cursor.execute(_POSTED.encode()).fetchall()
        ]


def _read_burned(cursor: psycopg.Cursor[Any], organization_id: str, currency: str) -> Decimal:
    row = cursor.execute(
        "SELECT coalesce(sum(posted_amount), 0) FROM credit_burn_hours"
        " WHERE organization_id = %s AND currency = %s",
        (organization_id, currency),
    ).fetchone()
    assert row is not None  # noqa: S101  # a sum is one row
    burned: Decimal = row[0]
    return burned
