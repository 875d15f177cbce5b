"""What the worker does by the clock: partitions ahead of their day, ledger postings.

Each job runs under its advisory lock: of several workers on one database, one does it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from billing.clock import Clock
from billing.ledger.post import post_pending_hours
from billing.usage.partitions import make_partitions
from billing.worker_database import WorkerDatabase

# Advisory lock numbers, ours alone in this database: "forebay" and a job's number.
_LOCK_SPACE = 0x666F7265
_PARTITIONS_LOCK = 1
_POSTING_LOCK = 2

_PARTITIONS_SECONDS = 3600.0
# A closed hour is posted this long after its end, when its last requests are settled.
_HOUR_GRACE_SECONDS = 5


class ScheduledJobs:
    """Remembers when each job is due; :meth:`run_due` is called between batches."""

    def __init__(
        self, database: WorkerDatabase, clock: Clock, *, ledger_post_seconds: float
    ) -> None:
        """``ledger_post_seconds``: how long a charge may stay out of the ledger at most."""
        self._database = database
        self._clock = clock
        self._post_seconds = ledger_post_seconds
        self._partitions_due = 0.0
        self._post_due = time.monotonic() + ledger_post_seconds
        self._posted_hour = self._graced_hour()

    def run_due(self) -> None:
        """Run what is due now, if no other worker is at it."""
        now = time.monotonic()
        if now >= self._partitions_due:
            self._partitions_due = now + _PARTITIONS_SECONDS
            self._database.run(self._make_partitions)
        hour = self._graced_hour()
        if now >= self._post_due or hour != self._posted_hour:
            self._post_due = now + self._post_seconds
            self._posted_hour = hour
            self._database.run(self._post)

    def post_all(self) -> None:
        """Post everything that is pending (at a clean stop), waiting for whoever is at it."""
        self._database.run(lambda connection: post_pending_hours(connection, clock=self._clock))

    def _graced_hour(self) -> int:
        """Return the number of the hour that was running a few seconds ago."""
        return (int(self._clock().timestamp()) - _HOUR_GRACE_SECONDS) // 3600

    def _make_partitions(self, connection: psycopg.Connection[Any]) -> None:
        with _advisory_lock(connection, _PARTITIONS_LOCK) as is_ours:
            if is_ours:
                make_partitions(connection, self._clock().date())

    def _post(self, connection: psycopg.Connection[Any]) -> None:
        with _advisory_lock(connection, _POSTING_LOCK) as is_ours:
            if is_ours:
                post_pending_hours(connection, clock=self._clock)


@contextmanager
def _advisory_lock(connection: psycopg.Connection[Any], number: int) -> Iterator[bool]:
    """Hold a session's advisory lock if it is free; yields whether it is ours."""
    row = connection.execute(
        "SELECT pg_try_advisory_lock(%s, %s)", (_LOCK_SPACE, number)
    ).fetchone()
    is_ours = bool(row and row[0])
    try:
        yield is_ours
    finally:
        if is_ours and not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(%s, %s)", (_LOCK_SPACE, number))
