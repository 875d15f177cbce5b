"""Step 4a, whole: an engine that is awake, a place there, and the replicas that there are by then."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.dataplane.wait_awake import wake_as_needed
from gateway.dataplane.wait_turn import wait_turn

if TYPE_CHECKING:
    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.plane import DataPlane
    from gateway.dataplane.queue_slot import Slot


async def await_place(
    plane: DataPlane, request: ActiveRequest, exchange: HttpExchange
) -> Slot | None:
    """Return the place at ``request.route``, if its deployment has any; raises as :func:`wait_turn`.

    Replicas may have come and gone meanwhile: ``request.route`` has those of the latest Snapshot
    then. A deployment that is gone itself is asked while it answers.
    """
    route = request.route
    if route.fleet.may_sleep:
        await wake_as_needed(plane, request, exchange)
    slot = None if route.queue is None else await wait_turn(plane, request, route.queue, exchange)
    fleet = None if plane.table is None else plane.table.fleets.get(route.deployment_id)
    if fleet is not None and fleet is not route.fleet:
        request.route = replace(route, fleet=fleet)
    return slot
