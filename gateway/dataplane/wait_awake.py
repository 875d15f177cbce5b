"""Step 4, before a place: wait for a deployment that sleeps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway.dataplane.ended_errors import ClientGoneError, GatewayStoppedError
from gateway.dataplane.wait_turn import keep_alive

if TYPE_CHECKING:
    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.plane import DataPlane


async def wake_as_needed(plane: DataPlane, request: ActiveRequest, exchange: HttpExchange) -> None:
    """Wait for a deployment that sleeps; where all that work are busy, begin to wake one more.

    Raises as :func:`wait_awake`.
    """
    fleet, now = request.route.fleet, request.clock()
    if fleet.is_asleep(now):
        await wait_awake(plane, request, exchange)
    elif fleet.is_growth_due(now):
        limit_seconds = fleet.deployment.sleep.wake_limit_seconds
        plane.waker.wake_another(
            fleet.deployment.id,
            fleet.list_sleepers(),
            lambda replica: plane.fleets.expect_start(replica.id, limit_seconds),
        )


async def wait_awake(plane: DataPlane, request: ActiveRequest, exchange: HttpExchange) -> None:
    """Return when a replica of ``request.route`` is awake.

    Raises :class:`gateway.errors.UnavailableError` when that takes too long,
    :class:`ClientGoneError` and :class:`GatewayStoppedError`; the wake goes on.
    """
    deployment = request.route.fleet.deployment
    keeper = keep_alive(plane, request, exchange)
    waking = asyncio.ensure_future(
        plane.waker.wake(
            deployment.id,
            request.route.fleet.list_to_wake(),
            deployment.sleep.wake_limit_seconds,
            keeper,
        )
    )
    request.sleeper = waking
    try:
        replica = await waking
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not waking.cancelled() or (task is not None and task.cancelling()):
            raise
        # The wait was ended, not the task (ActiveRequest.end_waiting).
        if request.is_client_gone:
            raise ClientGoneError("The client left.") from None
        raise GatewayStoppedError("The gateway is shutting down.") from None
    finally:
        request.sleeper = None
    plane.fleets.expect_start(replica.id, deployment.sleep.wake_limit_seconds)
