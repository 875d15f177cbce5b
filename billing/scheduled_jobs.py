"""What the worker does by the clock: partitions ahead of their day, ledger postings.

Each job runs under its advisory lock: of several workers on one database, one does it.
"""

from __future__ import annotations

import time
from typing import Any

import psycopg

from billing.advisory_locks import LockNumber, try_advisory_lock
from billing.clock import Clock
from billing.ledger.post import post_pending_hours
from billing.usage.partitions import make_partitions
from billing.worker_database import WorkerDatabase

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
        with try_advisory_lock(connection, LockNumber.PARTITIONS) as is_ours:
            if is_ours:
                make_partitions(connection, self._clock().date())

    def _post(self, connection: psycopg.Connection[Any]) -> None:
        with try_advisory_lock(connection, LockNumber.POSTING) as is_ours:
            if is_ours:
                post_pending_hours(connection, clock=self._clock)
