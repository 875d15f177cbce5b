"""The posting job: what projects owe and the ledger does not know yet becomes transactions.

One per project, hour and currency and run of the job, never one per request. Then credit.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import psycopg

from billing.clock import utc_now
from billing.db import connect
from billing.ledger.post_credit import post_pending_credit
from billing.ledger.project_hours import take_pending
from billing.ledger.service import write_postings
from billing.ledger.templates import usage_charge
from billing.retry import retry_conflicts

_BATCH = 1000  # project hours a transaction


def post_pending(database_url: str, *, clock: Callable[[], datetime] = utc_now) -> int:
    """Post everything that is owed and not posted; return how many transactions were written.

    May run beside workers and other callers: each amount is posted once.
    """
    with connect(database_url, application_name="forebay-post") as connection:
        return post_pending_hours(connection, clock=clock)


def post_pending_hours(
    connection: psycopg.Connection[Any], *, clock: Callable[[], datetime] = utc_now
) -> int:
    """Like :func:`post_pending`, on a connection without a transaction in progress."""
    posted = 0
    while True:
        count = retry_conflicts(lambda: _post_batch(connection, clock()))
        posted += count
        if count < _BATCH:
            return posted + post_pending_credit(connection, clock=clock)


def _post_batch(connection: psycopg.Connection[Any], now: datetime) -> int:
    with connection.transaction(), connection.cursor() as cursor:
        pending = take_pending(cursor, limit=_BATCH)
        postings = [
            usage_charge(
                organization_id=item.organization_id,
                project_id=item.project_id,
                hour=item.hour,
                currency=item.currency,
                amount=item.amount,
            )
            for item in pending
        ]
        write_postings(cursor, postings, now=now)
        return len(postings)
