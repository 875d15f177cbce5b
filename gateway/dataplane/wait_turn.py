"""Step 4a: wait for a place at a saturated deployment, in fair order.

While a client that streams waits, it may be sent comments so that nothing on the way gives it up.
They begin late: with the first of them the status 200 is sent, and what goes wrong afterwards can
only be told inside the stream.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway.dataplane.active_request import ActiveRequest
from gateway.dataplane.answer import stream_lines
from gateway.dataplane.ended_errors import ClientGoneError
from gateway.dataplane.queue_slot import QueueFullError, QueueRefusedError, Slot
from gateway.errors import UnavailableError

if TYPE_CHECKING:
    from gateway.dataplane.fair_queue import FairQueue
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.plane import DataPlane

_COMMENT = b": waiting for a free engine\n\n"


async def wait_turn(
    plane: DataPlane, request: ActiveRequest, queue: FairQueue, exchange: HttpExchange
) -> Slot:
    """Return the place at ``request.route`` that the request runs in.

    Raises :class:`UnavailableError` when the queue is full or the wait was too long, and
    :class:`ClientGoneError`.
    """
    guess = request.guess
    cost = 0.0 if guess is None else float(guess.input_tokens + guess.output_tokens)
    slot = queue.try_enter(cost)
    if slot is not None:
        return slot
    if request.is_client_gone:
        raise ClientGoneError("The client left.")
    route = request.route.route
    policy = route.queue
    keeper, begun_at = keep_alive(plane, request, exchange), request.clock()
    try:
        waiter = queue.enter(
            route_id=route.id,
            organization_id=request.identity.organization_id,
            weight=_weight_of(plane, request.identity.organization_id),
            priority=policy.priority,
            cost=cost,
            size=request.route.places,
            deadline_seconds=policy.deadline_seconds,
        )
        request.waiter = waiter
        return await waiter
    except QueueRefusedError as error:
        is_full = isinstance(error, QueueFullError)
        raise UnavailableError(
            "The model is at its capacity and its queue is full."
            if is_full
            else f"The model was at its capacity for {policy.deadline_seconds:g} s.",
            code="queue_full" if is_full else "queue_timeout",
            retry_after_seconds=error.retry_after_seconds,
        ) from None
    finally:
        request.waiter = None
        if plane.counts is not None:
            plane.counts.waited(route.name, request.clock() - begun_at)
        if keeper is not None:
            keeper.stop()


def _weight_of(plane: DataPlane, organization_id: str) -> float:
    """Return the share of an organization beside others that wait."""
    table = plane.table
    return 1.0 if table is None else table.organization_weights.get(organization_id, 1.0)


def keep_alive(plane: DataPlane, request: ActiveRequest, exchange: HttpExchange) -> Keeper | None:
    """Return what keeps a streaming client while it waits; who asks for it stops it."""
    if not request.identity.is_stream:
        return None
    return Keeper(request, exchange, plane.config.queue_keepalive_seconds)


class Keeper:
    """Sends a comment now and then while its request waits."""

    __slots__ = ("_every_seconds", "_exchange", "_request", "_timer")

    def __init__(
        self, request: ActiveRequest, exchange: HttpExchange, every_seconds: float
    ) -> None:
        self._request = request
        self._exchange = exchange
        self._every_seconds = every_seconds
        self._timer = asyncio.get_running_loop().call_later(every_seconds, self._send)

    def _send(self) -> None:
        exchange = self._exchange
        if exchange.is_gone:
            return
        if not exchange.has_begun:
            exchange.begin_stream(200, stream_lines(self._request, exchange))
        exchange.send(_COMMENT)
        self._timer = asyncio.get_running_loop().call_later(self._every_seconds, self._send)

    def stop(self) -> None:
        """Send nothing more."""
        self._timer.cancel()
