"""One timer for all requests of a worker: timeouts, progress records, reservations that grow.

Twenty passes a second over the running requests cost less than timers of their own for each,
most of which would be made only to be cancelled. Every other one looks only for what an engine that
fails holds.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from backends.errors import BackendTimeoutError
from gateway.dataplane.ended_errors import BudgetEndedError
from gateway.dataplane.reservation import GROW_SECONDS
from gateway.dataplane.take_back import is_in_doubt, take_back

if TYPE_CHECKING:
    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.config import DataPlaneConfig
    from gateway.dataplane.reservation import Reservation

SWEEP_SECONDS = 0.05
PROGRESS_SECONDS = 1.0  # what a kill -9 of a worker can lose of a running stream

_LOG = logging.getLogger(__name__)


async def sweep(active: set[ActiveRequest], config: DataPlaneConfig) -> None:
    """Watch over ``active`` until cancelled."""
    loop = asyncio.get_running_loop()
    next_growth_at = 0.0
    growing: set[asyncio.Task[None]] = set()
    doubtful: list[ActiveRequest] = []
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        now = loop.time()
        is_growth_pass = now >= next_growth_at
        if is_growth_pass:
            next_growth_at = now + GROW_SECONDS
        for request in list(active):
            if is_in_doubt(request):
                doubtful.append(request)
            if not is_growth_pass:
                continue
            _check_timeout(request, now, config)
            try:
                if request.reservation is not None and not request.is_settled:
                    _check_growth(request, growing)
                if _is_progress_due(request, now):
                    request.record_progress(now)
            except Exception:  # noqa: BLE001 - the edge: all others are watched all the same
                _LOG.exception("request %s cannot be watched", request.identity.request_id)
        if doubtful:
            take_back(doubtful, now)
            doubtful.clear()


def _is_progress_due(request: ActiveRequest, now: float) -> bool:
    return request.stream_usage is not None and now - request.progress_at >= PROGRESS_SECONDS


def _check_growth(request: ActiveRequest, growing: set[asyncio.Task[None]]) -> None:
    """Reserve ahead of a running stream; end one whose money has ended."""
    reservation, connection = request.reservation, request.connection
    produced = max(_counted_tokens(request), _uncounted_tokens(request))
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
    """End a stream that has produced all that there was money for, by its engine's own counts.

    One that counts at its end only is not ended: nobody could say what came until then costs.
    """
    budget, connection = reservation.ended_budget, request.connection
    if budget is None or connection is None or request.is_settled:
        return
    if reservation.is_exhausted(_counted_tokens(request)):
        connection.abort(BudgetEndedError(budget))


def _counted_tokens(request: ActiveRequest) -> int:
    """Return the output tokens that the engine has counted for a running stream so far."""
    counts = request.stream_usage
    return 0 if counts is None or not counts.is_known else counts.total().output_tokens or 0


def _uncounted_tokens(request: ActiveRequest) -> int:
    """Return how many a stream has produced of which its engine has told nothing, as far as can be seen.

    No more than the client allows: some servers' chunks are smaller than a token.
    """
    counts, guess = request.stream_usage, request.guess
    chunks = 0 if counts is None else counts.uncounted_chunks
    most = None if guess is None else guess.most_output_tokens
    return chunks if most is None else min(chunks, most)


def _check_timeout(request: ActiveRequest, now: float, config: DataPlaneConfig) -> None:
    connection = request.connection
    if connection is None or request.is_held_back:
        return
    deployment = None if request.fleet is None else request.fleet.deployment
    if not request.identity.is_stream:  # tells nothing until its end: only all of it is timed
        told = None if deployment is None else deployment.reply_timeout_seconds
        limit = config.reply_timeout_seconds if told is None else told
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
