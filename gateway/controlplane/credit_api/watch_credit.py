"""Notices credit that changes although nobody calls, and raises the Snapshot's version.

Of several control planes each looks; the row of the organization is the lock, and who comes second
finds nothing to do.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable

from billing.budgets.credit_expiry import list_changed_late, list_just_expired
from billing.budgets.credit_rule import refresh_amount
from billing.clock import Clock
from gateway.controlplane.changes import record_change
from gateway.controlplane.database import Database
from gateway.controlplane.scheduled_job import run_again_and_again

# Charges from before an expiry come late where a request ran over it, or a journal was left behind.
_LATE_LOOK_SECONDS = 10.0

_log = logging.getLogger(__name__)


class CreditWatch:
    """Looks for expired grants until cancelled."""

    def __init__(
        self,
        database: Database,
        publish_soon: Callable[[], Awaitable[None]],
        *,
        clock: Clock,
        poll_seconds: float,
    ) -> None:
        self._database = database
        self._publish_soon = publish_soon
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._late_look_due = 0.0

    async def run(self) -> None:
        """Look again and again."""
        await run_again_and_again(
            self.look, poll_seconds=self._poll_seconds, name="looking for expired credit", log=_log
        )

    async def look(self) -> None:
        """Bring the rules of what has expired up to date, and publish them if they changed."""
        now = self._clock()
        async with self._database.read() as session:
            found = set(await list_just_expired(session, now=now))
            if time.monotonic() >= self._late_look_due:
                found |= set(await list_changed_late(session, now=now))
                self._late_look_due = time.monotonic() + _LATE_LOOK_SECONDS
        has_changed = False
        for organization_id in sorted(found):
            async with self._database.write() as session:
                if await refresh_amount(session, organization_id, now=now):
                    record_change(session)
                    has_changed = True
        if has_changed:
            await self._publish_soon()
