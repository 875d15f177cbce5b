"""The only code that writes the ledger. Who may import it is an import contract."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import psycopg

from billing.ids import new_id
from billing.ledger.entry import Posting


def write_postings(
    cursor: psycopg.Cursor[Any], postings: Sequence[Posting], *, now: datetime
) -> list[str]:
    """Write ``postings`` in the caller's transaction; return their transaction ids.

    The ledger does not know a posting that it has seen before: the caller makes a retry safe. The
    database checks zero sums when the transaction commits.
    """
    if not postings:
        return []
    accounts = _accounts_for(cursor, postings, now=now)
    ids = [new_id("ltx") for _ in postings]
    with cursor.copy(
        "COPY ledger_transactions (id, kind, organization_id, project_id, effective_at,"
        " created_at, entries) FROM STDIN"
    ) as copy:
        for transaction_id, posting in zip(ids, postings, strict=True):
            copy.write_row(
                (
                    transaction_id,
                    posting.kind.value,
                    posting.organization_id,
                    posting.project_id,
                    posting.effective_at,
                    now,
                    len(posting.lines),
                )
            )
    with cursor.copy(
        "COPY ledger_entries (transaction_id, line, account_id, currency, amount) FROM STDIN"
    ) as copy:
        for transaction_id, posting in zip(ids, postings, strict=True):
            for number, line in enumerate(posting.lines, start=1):
                account = accounts[posting.organization_id, line.account.value, line.currency]
                copy.write_row((transaction_id, number, account, line.currency, line.amount))
    return ids


def _accounts_for(
    cursor: psycopg.Cursor[Any], postings: Sequence[Posting], *, now: datetime
) -> dict[tuple[str, str, str], str]:
    """Return account ids by organization, kind and currency, making the missing ones."""
    keys = sorted(
        {
            (posting.organization_id, line.account.value, line.currency)
            for posting in postings
            for line in posting.lines
        }
    )
    columns = [list(column) for column in zip(*keys, strict=True)]
    cursor.execute(
        "INSERT INTO ledger_accounts (id, organization_id, kind, currency, created_at)"
        " SELECT wanted.*, %s FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[])"
        " AS wanted (id, organization_id, kind, currency)"
        " ON CONFLICT (organization_id, kind, currency) DO NOTHING",
        (now, [new_id("lac") for _ in keys], *columns),
    )
    cursor.execute(
        "SELECT a.organization_id, a.kind, a.currency, a.id FROM ledger_accounts a"
        " JOIN unnest(%s::text[], %s::text[], %s::text[])"
        " AS wanted (organization_id, kind, currency)"
        " USING (organization_id, kind, currency)",
        columns,
    )
    return {(row[0], row[1], row[2]): row[3] for row in cursor}
