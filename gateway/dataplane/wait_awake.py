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
            [replica for replica in deployment.replicas if not replica.is_draining],
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
