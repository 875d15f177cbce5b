"""What a worker says of itself to whoever watches it, four times a second: counts and state."""

from __future__ import annotations

import asyncio
import logging

from gateway.dataplane.limits.local_limiter import LocalLimiter
from gateway.dataplane.metrics.families import OTHER
from gateway.dataplane.metrics.request_counts import RequestCounts
from gateway.dataplane.metrics.worker_state import ReplicaLoad, WorkerState, encode_state
from gateway.dataplane.plane import DataPlane
from routing.types import ReplicaState

REPORT_SECONDS = 0.25
_MAX_REPLICAS = 500  # more are not told of one by one

_LOG = logging.getLogger(__name__)


async def report_state(plane: DataPlane, counts: RequestCounts) -> None:
    """Publish what the worker counts, its state, and how late its event loop is, until cancelled."""
    loop, has_complained = plane.loop, False
    while True:
        counts.page.publish()
        due_at = loop.time() + REPORT_SECONDS
        if not counts.page.write_state(encode_state(state_of(plane))) and not has_complained:
            has_complained = True
            _LOG.warning("metrics: the state of this worker is too large to be shown")
        await asyncio.sleep(max(due_at - loop.time(), 0.0))
        counts.lagged(loop.time() - due_at)


def state_of(plane: DataPlane) -> WorkerState:
    """Return what ``plane`` does at this moment."""
    limiter, snapshot = plane.limiter, plane.snapshot
    is_shared = not isinstance(limiter, LocalLimiter) and limiter.is_shared
    routes = [] if plane.table is None else list(plane.table.routes.values())
    return WorkerState(
        in_flight=len(plane.active),
        open_records=plane.journal.open_requests,
        limiter_mode="shared" if is_shared else "alone",
        snapshot_version=None if snapshot is None else snapshot.version,
        snapshot_published_at_us=0 if snapshot is None else snapshot.published_at_us,
        waiting={
            route.deployment: route.queue.waiting for route in routes if route.queue is not None
        },
        replicas=_loads(plane),
    )


def _loads(plane: DataPlane) -> list[ReplicaLoad]:
    now = plane.loop.time()
    fleets = {} if plane.table is None else plane.table.routes
    loads: dict[str, ReplicaLoad] = {}
    rest = 0
    for route in fleets.values():
        for view in route.fleet.views:
            if view.replica_id in loads:
                continue
            if len(loads) >= _MAX_REPLICAS:
                rest += view.in_flight
                continue
            loads[view.replica_id] = ReplicaLoad(
                route.deployment,
                view.replica_id,
                (ReplicaState.DRAINING if view.is_draining else view.state).value,
                view.breaker.state_at(now).value,
                view.in_flight,
            )
    if rest:
        loads[OTHER] = ReplicaLoad(OTHER, OTHER, ReplicaState.READY.value, "closed", rest)
    return list(loads.values())
