"""Tells the webhooks of budgets that a percent of the amount was crossed: at least once each.

The outbox is the table ``budget_alerts``: an alert is taken for a while, sent, then marked. A
process that dies in between leaves it to be taken again, with the same ``x-forebay-alert-id``.
"""

from __future__ import annotations

import asyncio
import logging

import httpx
from sqlalchemy.exc import SQLAlchemyError
from tenacity import (
    AsyncRetrying,
    RetryError,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from billing.budgets.alerts import DueAlert, mark_sent, note_crossings, take_due_alerts
from billing.clock import Clock
from billing.money import format_amount
from gateway.controlplane.database import Database

ALERT_ID_HEADER = "x-forebay-alert-id"
_TIMEOUT_SECONDS = 5.0
# Three tries take less than 20 seconds, within the half minute for which an alert is ours.
_TRIES = 3
_MAX_WAIT_SECONDS = 1.0
_BATCH = 20

_log = logging.getLogger(__name__)


class AlertSender:
    """Sends due alerts until cancelled; several control planes share the work."""

    def __init__(self, database: Database, *, clock: Clock, poll_seconds: float) -> None:
        self._database = database
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._is_failing = False
        self._client = httpx.AsyncClient(
            # A redirect could lead where the address check never looked.
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(_TIMEOUT_SECONDS),
        )

    async def run(self) -> None:
        """Look for crossings and send what is due, again and again."""
        while True:
            try:
                await self.send_due()
                self._is_failing = False
            except SQLAlchemyError as error:
                if not self._is_failing:
                    _log.warning("budget alerts wait: %s", type(error).__name__)
                self._is_failing = True
            except Exception:  # noqa: BLE001 - edge of a loop that must outlive anything
                _log.exception("sending budget alerts failed; trying on")
            await asyncio.sleep(self._poll_seconds)

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
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type((httpx.HTTPError, TimeoutError)),
                wait=wait_random_exponential(multiplier=0.2, max=_MAX_WAIT_SECONDS),
                stop=stop_after_attempt(_TRIES),
            ):
                with attempt:
                    await self._post(alert)
        except (RetryError, httpx.InvalidURL) as error:
            cause = error.last_attempt.exception() if isinstance(error, RetryError) else error
            _log.warning(
                "budget alert %s of %s was not taken (attempt %d): %s",
                alert.id,
                alert.budget_id,
                alert.attempts,
                type(cause).__name__,
            )
            return
        async with self._database.write() as session:
            await mark_sent(session, alert.id, now=self._clock())

    async def _post(self, alert: DueAlert) -> None:
        # Only the status counts, and a stranger's body could be endless.
        async with (
            asyncio.timeout(_TIMEOUT_SECONDS),
            self._client.stream(
                "POST",
                alert.webhook_url,
                json=_body_of(alert),
                headers={ALERT_ID_HEADER: alert.id},
            ) as answer,
        ):
            answer.raise_for_status()


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
