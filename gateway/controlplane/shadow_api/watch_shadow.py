"""Once a minute: is each shadowed route's quality above its floor, and are its prompts what they were.

What is wrong is an alarm until it is right again. Below the floor the latest change is undone, if
the route's policy lets it; a threshold moves by itself only where that was asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from billing.clock import Clock
from billing.shadow.alarms import (
    mark_shadow_alarm_sent,
    note_shadow_alarms,
    take_due_shadow_alarms,
    try_shadow_turn,
)
from gateway.controlplane.catalog.repository import list_routes_with_tiers
from gateway.controlplane.catalog.tier_versions import MadeBy
from gateway.controlplane.database import Database
from gateway.controlplane.errors import ConflictError
from gateway.controlplane.post_webhook import make_webhook_client, post_webhook
from gateway.controlplane.scheduled_job import run_again_and_again
from gateway.controlplane.shadow_api.read_standing import RouteStanding, read_evidence
from gateway.controlplane.shadow_api.service import figures_of, go_back, take_proposal
from gateway.controlplane.shadow_api.standing import find_thresholds, is_worth_moving

BELOW_FLOOR = "quality_below_floor"
SCORE_DRIFT = "score_drift"

_log = logging.getLogger(__name__)


class ShadowWatch:
    """Judges shadowed routes, acts as their policies say, and tells, until cancelled."""

    def __init__(
        self,
        database: Database,
        publish_soon: Callable[[], Awaitable[None]],
        *,
        clock: Clock,
        poll_seconds: float,
        webhook_url: str | None,
    ) -> None:
        """``webhook_url`` None: alarms are logged and shown, and sent to nobody."""
        self._database = database
        self._publish_soon = publish_soon
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._webhook_url = webhook_url
        self._webhook_client = make_webhook_client()

    async def run(self) -> None:
        """Look again and again."""
        await asyncio.sleep(self._poll_seconds)
        await run_again_and_again(
            self.look, poll_seconds=self._poll_seconds, name="judging shadowed routes", log=_log
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._webhook_client.aclose()

    async def look(self) -> None:
        """Judge every shadowed route once, act, and tell what is wrong."""
        now = self._clock()
        async with self._database.read() as session:
            evidence = [
                await read_evidence(
                    session, route, now=now, draws_curves=route.shadow["moves_threshold"]
                )
                for route in await list_routes_with_tiers(session)
                if route.shadow is not None
            ]
        found = await asyncio.to_thread(lambda: [one.judge() for one in evidence])
        alarms = dict(pair for one in found for pair in _alarms_of(one))
        async with self._database.write() as session:
            if not await try_shadow_turn(session):
                return
            await note_shadow_alarms(session, alarms, now=now)
        has_acted = False
        for one in found:
            has_acted = await self._act(one) or has_acted
        if has_acted:
            await self._publish_soon()
        await self._send_due()

    async def _act(self, one: RouteStanding) -> bool:
        """Do what the route's policy says; tell whether anything was changed."""
        policy, standing = one.policy, one.standing
        if standing.is_below_floor:
            return bool(policy["rolls_back"]) and await self._go_back(one)
        if not policy["moves_threshold"] or not is_worth_moving(standing, policy):
            return False
        if find_thresholds(standing, one.tiers, certain_only=True) is None:
            return False
        return await self._move(one)

    async def _go_back(self, one: RouteStanding) -> bool:
        async with self._database.write() as session:
            if not await try_shadow_turn(session):
                return False
            made = await go_back(session, one, now=self._clock())
        if made is None:
            _log.warning("route %s is below its floor; nothing to go back to", one.route)
            return False
        _log.warning("route %s is below its floor: %s, %s", one.route, made, figures_of(one))
        return True

    async def _move(self, one: RouteStanding) -> bool:
        try:
            async with self._database.write() as session:
                if not await try_shadow_turn(session):
                    return False
                await take_proposal(session, one, made_by=MadeBy.PROPOSAL, now=self._clock())
        except ConflictError:
            return False  # changed meanwhile: it is to be judged anew
        _log.info("route %s has the thresholds that were proposed: %s", one.route, figures_of(one))
        return True

    async def _send_due(self) -> None:
        if self._webhook_url is None:
            return
        async with self._database.write() as session:
            due = await take_due_shadow_alarms(session, now=self._clock())
        for alarm in due:
            body = {
                "id": alarm.id,
                "kind": alarm.kind,
                "since": alarm.since_at.isoformat(),
                **alarm.figures,
            }
            failure = await post_webhook(
                self._webhook_client, self._webhook_url, alert_id=alarm.id, body=body
            )
            if failure is not None:
                _log.warning(
                    "%s of route %s was not taken (attempt %d): %s",
                    alarm.kind,
                    alarm.route_id,
                    alarm.attempts,
                    failure,
                )
                continue
            async with self._database.write() as session:
                await mark_shadow_alarm_sent(session, alarm.id, now=self._clock())


def _alarms_of(one: RouteStanding) -> list[tuple[tuple[str, str], dict[str, Any]]]:
    wrong = {BELOW_FLOOR: one.standing.is_below_floor, SCORE_DRIFT: one.standing.is_drifting}
    return [((one.route_id, kind), figures_of(one)) for kind, is_so in wrong.items() if is_so]
