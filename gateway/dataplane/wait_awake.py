"""Step 4, before a place: wait for a deployment that sleeps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway.dataplane.ended_errors import ClientGoneError
from gateway.dataplane.wait_turn import keep_alive

if TYPE_CHECKING:
    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.plane import DataPlane


async def wait_awake(plane: DataPlane, request: ActiveRequest, exchange: HttpExchange) -> None:
    """Return when a replica of ``request.route`` is awake.

    Raises :class:`gateway.errors.UnavailableError` when that takes too long, and
    :class:`ClientGoneError`; the wake goes on.
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
        if request.is_client_gone and waking.cancelled():
            raise ClientGoneError("The client left.") from None
        raise
    finally:
        request.sleeper = None
    plane.fleets.expect_start(replica.id, deployment.sleep.wake_limit_seconds)
