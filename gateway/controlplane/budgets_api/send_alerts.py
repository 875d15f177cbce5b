"""Tells the webhooks of budgets that a percent of the amount was crossed: at least once each.

The outbox is the table ``budget_alerts``: an alert is taken for a while, sent, then marked. A
process that dies in between leaves it to be taken again, with the same ``x-forebay-alert-id``.
"""

from __future__ import annotations

import asyncio
import logging

from billing.budgets.alerts import DueAlert, mark_sent, note_crossings, take_due_alerts
from billing.clock import Clock
from billing.money import format_amount
from gateway.controlplane.database import Database
from gateway.controlplane.post_webhook import make_webhook_client, post_webhook
from gateway.controlplane.scheduled_job import run_again_and_again

_BATCH = 20

_log = logging.getLogger(__name__)


class AlertSender:
    """Sends due alerts until cancelled; several control planes share the work."""

    def __init__(self, database: Database, *, clock: Clock, poll_seconds: float) -> None:
        self._database = database
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._client = make_webhook_client()

    async def run(self) -> None:
        """Look for crossings and send what is due, again and again."""
        await run_again_and_again(
            self.send_due, poll_seconds=self._poll_seconds, name="sending budget alerts", log=_log
        )

    async def send_due(self) -> None:
        """Note what was crossed, then send what is due."""
        now = self._clock()
        async with self._database.write() as session:
            await note_crossings(session, now=now)
        async with self._database.write() as session:
            due = await take_due_alerts(session, now=now, limit=_BATCH)
        if due:
            await asyncio.gather(*(self._send(alert) for alert in due))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _send(self, alert: DueAlert) -> None:
        """Send one alert; a failure is logged and leaves it to its next attempt."""
        failure = await post_webhook(
            self._client, alert.webhook_url, alert_id=alert.id, body=_body_of(alert)
        )
        if failure is not None:
            _log.warning(
                "budget alert %s of %s was not taken (attempt %d): %s",
                alert.id,
                alert.budget_id,
                alert.attempts,
                failure,
            )
            return
        async with self._database.write() as session:
            await mark_sent(session, alert.id, now=self._clock())


def _body_of(alert: DueAlert) -> dict[str, object]:
    return {
        "id": alert.id,
        "budget": {
            "id": alert.budget_id,
            "name": alert.name,
            "scope": alert.scope,
            "scope_id": alert.scope_id,
            "amount": format_amount(alert.amount),
            "currency": alert.currency,
            "is_hard": alert.is_hard,
        },
        "window": {"kind": alert.window_kind, "start": alert.window_start.isoformat()},
        "spent": format_amount(alert.spent),
        "percent": alert.percent,
    }
