"""Steps 4 and 5, as often as it takes: a place, a replica, its reply; another where one fails early.

Tried again is only what has given the client nothing of the answer yet. A retry of what an engine
had accepted takes from its deployment's retry budget, so that failures cannot multiply load. When a
route cannot answer at all, those that an admin named as its fallbacks are asked in their order; a
route whose every engine is known to be broken is asked last.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from backends.errors import BackendError, EngineAsleepError
from gateway.dataplane.await_place import await_place
from gateway.dataplane.choose_route import is_allowed
from gateway.dataplane.dispatch import NoReplicaError, UnsupportedError, dispatch, unreachable
from gateway.dataplane.engine_body import engine_body
from gateway.dataplane.engine_errors import CONTEXT_CODE
from gateway.dataplane.failures import MAX_ATTEMPTS, Failure, outcome_of, read_failure
from gateway.dataplane.receive_reply import receive_reply
from gateway.dataplane.request_shape import shape_of, trace_lines
from gateway.dataplane.wait_awake import wait_awake
from gateway.errors import ApiError, UnavailableError
from routing.backoff import backoff_seconds
from routing.filters import are_all_broken
from routing.outcome import Outcome
from routing.types import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.admit import Arrival
    from gateway.dataplane.answer import WholeAnswer
    from gateway.dataplane.fleet import Fleet
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.plane import DataPlane
    from gateway.dataplane.queue_slot import Slot
    from gateway.dataplane.serving_table import ServedRoute
    from routing.types import RequestShape


def try_routes(
    plane: DataPlane,
    arrival: Arrival,
    to_engine: bytes,
    request: ActiveRequest,
    exchange: HttpExchange,
) -> Coroutine[None, None, WholeAnswer | None]:
    """Return the answer; None when it was a stream, which is sent by then.

    ``to_engine``: the body for the route that was asked for. Raises :class:`ApiError` or
    :class:`BackendError`: what the client is to be told, of the latest attempt.
    """
    if not arrival.route.fallbacks:
        return try_route(plane, arrival, to_engine, request, exchange)
    return try_in_turn(plane, arrival, to_engine, request, exchange)


async def try_in_turn(
    plane: DataPlane,
    arrival: Arrival,
    to_engine: bytes,
    request: ActiveRequest,
    exchange: HttpExchange,
) -> WholeAnswer | None:
    """Ask the route, then its fallbacks. Raises as :func:`try_routes`."""
    chosen, asked = request.identity, request.route
    request.others = tuple(
        route for route in arrival.route.fallbacks if is_allowed(arrival.caller, route.route.name)
    )
    latest: ApiError | BackendError
    is_put_off = _is_better_elsewhere(request)
    if is_put_off:
        latest = unreachable(asked)
    else:
        try:
            return await try_route(plane, arrival, to_engine, request, exchange)
        except (ApiError, BackendError) as error:
            latest = error
    for route in request.others:
        reason = _reason_to_fall_back(request, latest)
        if reason is None:
            break
        is_retry = _has_cost_work(request, latest)
        if not await follow(plane, arrival, request, route, reason, is_retry=is_retry):
            continue
        body = engine_body(arrival.body, arrival.wanted, route)
        try:
            return await try_route(plane, arrival, body, request, exchange)
        except UnsupportedError:
            continue  # what went wrong before is still what the client should know
        except (ApiError, BackendError) as error:
            latest = error
    if is_put_off and _reason_to_fall_back(request, latest) is not None:
        # What we think of its engines may be wrong, and nobody else has answered.
        request.identity, request.route = chosen, asked
        request.error_code = "internal_error"  # what the fallback said is not how this one ends
        if arrival.conversation is not None and asked.tier is not None:
            plane.tier_memory.move(arrival.conversation, asked.tier.name)
        price = asked.find_price(arrival.caller.price_book_id, arrival.at_us)
        if request.reservation is None or await request.reservation.follow_price(price):
            return await try_route(plane, arrival, to_engine, request, exchange)
    raise latest


async def try_route(
    plane: DataPlane,
    arrival: Arrival,
    body: bytes,
    request: ActiveRequest,
    exchange: HttpExchange,
) -> WholeAnswer | None:
    """Get the answer from the deployment of ``request.route``. Raises as :func:`try_routes`."""
    route = request.route
    fleet = route.fleet
    trace = trace_lines(exchange.headers)
    fleet.retry_budget.deposit()
    slot: Slot | None = None
    tried: list[str] = []
    failures = 0
    was_woken = False
    soonest: float | None = None  # that a busy engine asked to be tried again, seconds
    try:
        if fleet.may_sleep or route.queue is not None:
            slot = await await_place(plane, request, exchange)
            fleet = request.route.fleet  # of other replicas, perhaps, than before the wait
        shape = shape_of(plane, arrival, request, exchange.headers)
        while True:
            try:
                connection = await dispatch(request, body, trace, shape=shape, tried=tried)
                answer = await receive_reply(plane, arrival, request, exchange, connection)
            except (ApiError, BackendError) as error:
                is_unreached = isinstance(error, NoReplicaError | EngineAsleepError)
                now = request.clock()
                if is_unreached and not was_woken and await fleet.is_asleep_after_all(now):
                    request.end_attempt(Outcome.NOTHING)
                    was_woken = True
                    tried.clear()
                    await wait_awake(plane, request, exchange)
                    continue
                failure = read_failure(error)
                failures += 1
                request.end_attempt(
                    failure.outcome, retry_after_seconds=failure.retry_after_seconds
                )
                if failure.retry_after_seconds is not None:
                    told = failure.retry_after_seconds
                    soonest = told if soonest is None else min(soonest, told)
                longer = _longer_shape(request, shape, tried) if failure.is_too_long else None
                if longer is not None:
                    shape = longer
                elif failures >= MAX_ATTEMPTS or not await _may_retry(
                    plane, request, failure, tried
                ):
                    if soonest is not None and isinstance(error, ApiError):
                        error.retry_after_seconds = soonest
                    raise
            else:
                request.end_attempt(outcome_of(request))
                return answer
    finally:
        request.end_attempt(Outcome.NOTHING)  # of a request that was cancelled
        if slot is not None:
            slot.leave(request.real_cost)


async def _may_retry(
    plane: DataPlane, request: ActiveRequest, failure: Failure, tried: list[str]
) -> bool:
    """Tell whether to try again, after a pause if it has to be the same replica."""
    fleet = request.route.fleet
    if not failure.may_retry or request.is_client_gone:
        return False
    is_another_left = len(tried) < len(fleet.views)
    if not is_another_left and (failure.outcome is Outcome.BUSY or failure.is_timeout):
        return False  # there it would only be in the way
    if failure.outcome is Outcome.NOTHING:
        return is_another_left  # the engine has refused at once: nobody's work is repeated
    if not fleet.retry_budget.try_take(request.clock()):
        return False
    if plane.counts is not None:
        plane.counts.retried(request.route.deployment, failure.outcome)
    if not is_another_left:
        await asyncio.sleep(backoff_seconds(len(tried)))
        tried.clear()
    return True


def _longer_shape(
    request: ActiveRequest, shape: RequestShape, tried: list[str]
) -> RequestShape | None:
    """Return the shape by which a replica with more context takes what was too long for one.

    None: there is none. Takes nothing from the retry budget: the engine has refused at once.
    """
    decision = request.decision
    refused = None if decision is None else decision.view.context_tokens
    if refused is None or not any(
        view.context_tokens is not None
        and view.context_tokens > refused
        and not view.is_draining
        and view.replica_id not in tried
        for view in request.route.fleet.views
    ):
        return None
    return replace(
        shape,
        input_tokens=max(refused + 1 - shape.output_tokens, shape.input_tokens),
        asked_tokens=max(shape.asked_tokens, 0),
    )


def _reason_to_fall_back(request: ActiveRequest, error: ApiError | BackendError) -> str | None:
    """Return why another route is to answer; None: the client is to be told ``error``."""
    if request.is_client_gone:
        return None
    failure = read_failure(error)
    may_help = failure.may_retry or failure.is_too_long or isinstance(error, UnavailableError)
    return failure.code if may_help else None


def _may_be_longer(fleet: Fleet, refused: Fleet) -> bool:
    """Tell whether a replica may take what is too long for the longest of another fleet."""
    before = [view.context_tokens for view in refused.views if view.context_tokens is not None]
    return not before or any(
        view.context_tokens is None or view.context_tokens > max(before) for view in fleet.views
    )


def _is_better_elsewhere(request: ActiveRequest) -> bool:
    """Tell whether no engine of the route works, as far as we know, and a fallback's may.

    To find out again what is known would cost each request a timeout, where engines hang. But what
    probes say may be wrong: now and then a request asks all the same, and its answer ends that.
    """
    now, fleet = request.clock(), request.route.fleet
    if not are_all_broken(fleet.views, now):
        return False
    if all(are_all_broken(route.fleet.views, now) for route in request.others):
        return False
    # Breakers let one through by themselves; but not where a probe's word stands before them.
    is_by_probe = any(view.state is ReplicaState.FAILED for view in fleet.views)
    return not (is_by_probe and fleet.memory.is_trial_due(now))


def _has_cost_work(request: ActiveRequest, error: ApiError | BackendError) -> bool:
    """Tell whether a fallback after ``error`` multiplies load, as a retry does.

    So where engines are too slow, while their fleet goes on: they have worked on the request, and
    what is too much for one deployment would be too much for the next. Else it is the first work
    that anybody does for this request, or all requests of a broken fleet go elsewhere, each once.
    """
    is_slow = read_failure(error).is_timeout
    return is_slow and not are_all_broken(request.route.fleet.views, request.clock())


async def follow(
    plane: DataPlane,
    arrival: Arrival,
    request: ActiveRequest,
    route: ServedRoute,
    reason: str,
    *,
    is_retry: bool = False,
) -> bool:
    """Turn the request into one of ``route``; False when it may not be served there.

    ``is_retry``: it takes a token of that deployment's retry budget.
    """
    if not is_allowed(arrival.caller, route.route.name):
        return False
    if reason == CONTEXT_CODE and not _may_be_longer(route.fleet, request.route.fleet):
        return False  # it would refuse as well
    price = route.find_price(arrival.caller.price_book_id, arrival.at_us)
    if request.reservation is not None and not await request.reservation.follow_price(price):
        return False
    if is_retry and not route.fleet.retry_budget.try_take(request.clock()):
        return False
    request.fall_back(route, reason)
    if arrival.conversation is not None and route.tier is not None:
        plane.tier_memory.move(arrival.conversation, route.tier.name)
    if plane.counts is not None:
        plane.counts.fell_back(arrival.route.route.name, route.route.name)
    return True
