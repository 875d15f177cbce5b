"""One call of the platform's own: in the journal, dispatched, metered and settled like a request.

It has no client, no limits and no budget of a customer's, and counts in no metric of theirs. Nobody
waits for it: a client who waits for its place gets it within a tenth of a second.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, cast

from backends.errors import BackendError
from billing.usage.event import OpenRecord, RequestIdentity, RequestStatus, TokenUsage
from gateway.dataplane.active_request import ActiveRequest
from gateway.dataplane.dispatch import dispatch
from gateway.dataplane.ended_errors import ClientGoneError
from gateway.dataplane.engine_errors import backend_error
from gateway.dataplane.failures import read_failure
from gateway.dataplane.request_ids import arrival_us
from gateway.dataplane.request_shape import demands_of
from gateway.dataplane.whole_reply import whole_answer
from gateway.errors import ApiError
from routing.filters import find_obstacle
from routing.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from billing.usage.event import ShadowLink
    from gateway.dataplane.admit import Arrival
    from gateway.dataplane.estimate import Guess
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.plane import DataPlane
    from gateway.dataplane.queue_slot import Slot
    from gateway.dataplane.served_route import ServedRoute

MAX_REPLY_BYTES = 256 * 1024
_LOOK_SECONDS = 0.1  # how often it is asked whether a client waits


class BusyError(Exception):
    """There is no room for a call that nobody waits for."""


class CallFailedError(Exception):
    """The call gave no answer; it is settled."""


class Call(NamedTuple):
    """A call that is to be made."""

    arrival: Arrival  # the client's
    route: ServedRoute  # to ask, in its own name and at its own price
    body: bytes  # as its engine takes it
    endpoint: str
    link: ShadowLink
    guess: Guess


class CallAnswer(NamedTuple):
    """What came back."""

    body: bytes
    usage: TokenUsage


class _NoClient:
    """The exchange of a call that has no client."""

    __slots__ = ("is_gone", "on_leave")

    def __init__(self) -> None:
        self.is_gone = False
        self.on_leave: Callable[[], None] | None = None


def has_room(plane: DataPlane, call: Call) -> bool:
    """Tell whether a replica could take the call now, and no client's request would miss its place."""
    route = call.route
    queue = route.queue
    if queue is not None and (capacity := queue.capacity) is not None:
        is_last_place = capacity - queue.running < 2
        if queue.waiting or is_last_place:
            return False
    demands, now = demands_of(call.arrival, call.guess, [route.fleet]), plane.loop.time()
    return any(
        find_obstacle(view, demands, now) is None and not view.engine_waiting
        for view in route.fleet.views
    )


async def ask(plane: DataPlane, call: Call) -> CallAnswer:
    """Make the call and return the whole answer.

    Raises :class:`BusyError` when nothing was sent, :class:`CallFailedError`, and
    :class:`billing.usage.journal.JournalUnavailableError`.
    """
    slot: Slot | None = None
    queue = call.route.queue
    if not has_room(plane, call):
        raise BusyError
    if queue is not None:
        slot = queue.try_enter(float(call.guess.input_tokens + call.guess.output_tokens))
        if slot is None:
            raise BusyError
    request: ActiveRequest | None = None
    watch: _Courtesy | None = None
    try:
        request = _admit(plane, call)
        watch = _Courtesy(plane, request)
        return await _run(plane, call, request)
    finally:
        if watch is not None:
            watch.stop()
        if request is not None:
            request.end_attempt(Outcome.NOTHING)  # of one that was cancelled
            request.settle()
        if slot is not None:
            slot.leave(None if request is None else request.real_cost)


def _admit(plane: DataPlane, call: Call) -> ActiveRequest:
    caller, route, now_us = call.arrival.caller, call.route, arrival_us()
    identity = RequestIdentity(
        request_id=plane.request_ids.next(now_us),
        organization_id=caller.organization_id,
        project_id=caller.project_id,
        api_key_id=caller.id,
        route_id=route.route.id,
        route=route.route.name,
        deployment_id=route.deployment_id,
        endpoint=call.endpoint,
        is_stream=False,
        started_at_us=now_us,
        shadow=call.link,
    )
    plane.journal.append_open(OpenRecord(identity))
    return ActiveRequest(
        identity,
        route=route,
        journal=plane.journal,
        exchange=cast("HttpExchange", _NoClient()),
        active=plane.active,
        clock=plane.loop.time,
        reservation=None,
        guess=call.guess,
        log=plane.request_log,
    )


async def _run(plane: DataPlane, call: Call, request: ActiveRequest) -> CallAnswer:
    shape = demands_of(call.arrival, call.guess, [call.route.fleet])
    try:
        connection = await dispatch(request, call.body, b"", shape=shape, tried=[])
        reply = connection.take_whole() or await connection.read_all(MAX_REPLY_BYTES)
        answer = whole_answer(
            request,
            connection,
            reply,
            route=call.route,
            caller=call.arrival.caller,
            limit_bytes=MAX_REPLY_BYTES,
        )
    except (ApiError, BackendError) as error:
        failure = read_failure(error)
        request.end_attempt(failure.outcome, retry_after_seconds=failure.retry_after_seconds)
        _conclude_failure(request, error)
        raise CallFailedError from error
    except asyncio.CancelledError:  # it took too long, or the worker ends
        if not request.is_settled:
            request.conclude(RequestStatus.VOIDED, 0, error_code="gave_way")
        raise
    request.end_attempt(Outcome.ANSWERED)
    return CallAnswer(answer.body, request.usage)


def _conclude_failure(request: ActiveRequest, error: ApiError | BackendError) -> None:
    if request.is_settled:  # by the worker's end
        return
    if isinstance(error, ClientGoneError):
        request.conclude(RequestStatus.VOIDED, 0, error_code="gave_way")
        return
    told = backend_error(error) if isinstance(error, BackendError) else error
    if request.status is not RequestStatus.REJECTED:
        request.conclude(RequestStatus.FAILED, told.status, error_code=told.code)


class _Courtesy:
    """Ends the call as soon as a client's request waits for its place, or the worker drains."""

    __slots__ = ("_plane", "_request", "_timer")

    def __init__(self, plane: DataPlane, request: ActiveRequest) -> None:
        self._plane = plane
        self._request = request
        self._timer: asyncio.TimerHandle = plane.loop.call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        queue = self._request.route.queue
        if self._plane.is_draining or (queue is not None and queue.waiting):
            self._request.client_left()
            return
        self._timer = self._plane.loop.call_later(_LOOK_SECONDS, self._look)

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()
