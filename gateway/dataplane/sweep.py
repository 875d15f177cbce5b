"""One timer for all requests of a worker: timeouts, progress records, reservations that grow.

Twenty passes a second over the running requests cost less than timers of their own for each,
most of which would be made only to be cancelled.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from backends.errors import BackendTimeoutError, EngineAsleepError
from gateway.dataplane.ended_errors import BudgetEndedError
from gateway.dataplane.reservation import GROW_SECONDS
from routing.types import ReplicaState

if TYPE_CHECKING:
    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.config import DataPlaneConfig
    from gateway.dataplane.reservation import Reservation

SWEEP_SECONDS = 0.05
PROGRESS_SECONDS = 1.0  # what a kill -9 of a worker can lose of a running stream


async def sweep(active: set[ActiveRequest], config: DataPlaneConfig) -> None:
    """Watch over ``active`` until cancelled."""
    loop = asyncio.get_running_loop()
    next_growth_at = 0.0
    growing: set[asyncio.Task[None]] = set()
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        now = loop.time()
        is_growth_pass = now >= next_growth_at
        if is_growth_pass:
            next_growth_at = now + GROW_SECONDS
        for request in list(active):
            _check_asleep(request)
            _check_timeout(request, now, config)
            if request.reservation is not None and is_growth_pass and not request.is_settled:
                _check_growth(request, growing)
            if request.is_progress_due(now, PROGRESS_SECONDS):
                request.record_progress(now)


def _check_growth(request: ActiveRequest, growing: set[asyncio.Task[None]]) -> None:
    """Reserve ahead of a running stream; end one whose money has ended."""
    reservation, connection = request.reservation, request.connection
    produced = request.produced_tokens
    if reservation is None or connection is None or not produced:
        return
    if reservation.is_growth_needed(produced):
        task = asyncio.ensure_future(_grow(request, reservation))
        growing.add(task)
        task.add_done_callback(growing.discard)
    else:
        _end_exhausted(request, reservation)


async def _grow(request: ActiveRequest, reservation: Reservation) -> None:
    await reservation.grow()
    _end_exhausted(request, reservation)


def _end_exhausted(request: ActiveRequest, reservation: Reservation) -> None:
    """End a stream that has produced all that there was money for."""
    budget, connection = reservation.ended_budget, request.connection
    if budget is None or connection is None or request.is_settled:
        return
    if reservation.is_exhausted(request.produced_tokens):
        connection.abort(BudgetEndedError(budget))


def _check_asleep(request: ActiveRequest) -> None:
    """Take a request back that came to an engine just before it was seen asleep.

    Such an engine takes requests and holds them until somebody wakes it, which nobody would. An
    answer that has begun is not repeated.
    """
    connection, replica = request.connection, request.replica
    if connection is None or replica is None or replica.view.state is not ReplicaState.SLEEPING:
        return
    watch = replica.watch
    if watch is not None and watch.is_asleep_inside and request.first_token_at_us is None:
        connection.abort(EngineAsleepError("The engine sleeps."))


def _check_timeout(request: ActiveRequest, now: float, config: DataPlaneConfig) -> None:
    connection = request.connection
    if connection is None or request.is_held_back:
        return
    deployment = None if request.fleet is None else request.fleet.deployment
    if not request.identity.is_stream:
        limit = config.reply_timeout_seconds
    elif request.first_token_at_us is None:  # whatever else it sends meanwhile
        told = None if deployment is None else deployment.first_token_timeout_seconds
        limit = config.first_token_timeout_seconds if told is None else told
        if now - request.attempt_at > limit:
            connection.abort(BackendTimeoutError(f"No first token came for {limit:g} s."))
        return
    else:
        told = None if deployment is None else deployment.idle_timeout_seconds
        limit = config.idle_timeout_seconds if told is None else told
    if now - max(connection.last_received_at, request.attempt_at) > limit:
        connection.abort(BackendTimeoutError(f"The engine was silent for {limit:g} s."))
