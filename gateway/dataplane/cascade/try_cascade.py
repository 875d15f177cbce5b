"""Steps 4 and 5 of a request whose tier answers first: that tier, the ones above, that tier again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.errors import BackendError
from billing.usage.event import RequestStatus
from gateway.dataplane.cascade.gate import CascadeGate
from gateway.dataplane.cascade.plan import CascadeOutcome
from gateway.dataplane.cascade.record_cost import ERROR_CODE
from gateway.dataplane.ended_errors import LowConfidenceError
from gateway.dataplane.engine_body import engine_body
from gateway.dataplane.engine_errors import CONTEXT_CODE, EngineRefusalError
from gateway.dataplane.try_routes import follow, try_in_turn, try_route
from gateway.errors import ApiError

if TYPE_CHECKING:
    from billing.usage.event import RequestIdentity
    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.admit import Arrival
    from gateway.dataplane.answer import WholeAnswer
    from gateway.dataplane.cascade.plan import Cascade
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.plane import DataPlane

_REFUSED = 400  # what an engine says to what it does not do


async def try_cascade(
    plane: DataPlane, cascade: Cascade, request: ActiveRequest, exchange: HttpExchange
) -> WholeAnswer | None:
    """Return the answer; None when it was a stream, which is sent by then.

    Raises as :func:`gateway.dataplane.try_routes.try_routes`.
    """
    judged = cascade.arrival._replace(gate=CascadeGate(cascade))
    chosen = request.identity
    try:
        try:
            return await try_in_turn(plane, judged, cascade.judged_body, request, exchange)
        except LowConfidenceError:
            return await _ask_above(plane, cascade, judged, request, exchange, chosen=chosen)
        except EngineRefusalError as error:
            if not _may_be_for_the_wish(cascade, request, error):
                raise
            return await _ask_without_wish(plane, cascade, judged, request, exchange)
    finally:
        _count(plane, cascade)


async def _ask_above(
    plane: DataPlane,
    cascade: Cascade,
    judged: Arrival,
    request: ActiveRequest,
    exchange: HttpExchange,
    *,
    chosen: RequestIdentity,
) -> WholeAnswer | None:
    """Ask the tiers above; the first again, as ``chosen``, where none of them can answer after all."""
    arrival = cascade.arrival
    for route in cascade.above:
        if not await follow(plane, judged, request, route, ERROR_CODE):
            continue
        body = engine_body(arrival.body, arrival.wanted, route)
        try:
            answer = await try_route(plane, judged, body, request, exchange)
        except (ApiError, BackendError):
            if request.is_client_gone or request.is_settled:
                raise
        else:
            _hold_up(plane, arrival, cascade, request)
            return answer
    cascade.outcome = CascadeOutcome.RETURNED
    request.identity, request.route = chosen, arrival.route
    await cascade.take_price(request)
    if arrival.conversation is not None and arrival.route.tier is not None:
        plane.tier_memory.move(arrival.conversation, arrival.route.tier.name)
    return await try_in_turn(plane, judged, cascade.to_engine, request, exchange)


def _may_be_for_the_wish(
    cascade: Cascade, request: ActiveRequest, error: EngineRefusalError
) -> bool:
    """Tell whether the engine may have refused the log probabilities that only we asked for."""
    return (
        cascade.hides_logprobs
        and cascade.outcome is None
        and request.route is cascade.arrival.route
        and error.status == _REFUSED
        and error.code != CONTEXT_CODE
    )


async def _ask_without_wish(
    plane: DataPlane,
    cascade: Cascade,
    judged: Arrival,
    request: ActiveRequest,
    exchange: HttpExchange,
) -> WholeAnswer | None:
    """Ask as without a cascade; an engine that answers that is not asked with one again for now."""
    answer = await try_in_turn(plane, judged, cascade.to_engine, request, exchange)
    route = cascade.arrival.route
    if request.route is route and request.status is RequestStatus.COMPLETED:
        cascade.tiers.without_logprobs.add(route.deployment_id)
    return answer


def _hold_up(plane: DataPlane, arrival: Arrival, cascade: Cascade, request: ActiveRequest) -> None:
    """A conversation that has moved up stays there."""
    place = request.route.tier
    if arrival.conversation is None or place is None:
        return
    names = cascade.tiers.names
    plane.tier_memory.hold_up(arrival.conversation, names, names.index(place.name))


def _count(plane: DataPlane, cascade: Cascade) -> None:
    if plane.counts is not None:
        outcome = cascade.outcome or CascadeOutcome.UNDECIDED
        decision = cascade.arrival.tier
        route = cascade.arrival.route.asked.name if decision is None else decision.requested_route
        plane.counts.cascaded(route, outcome.value, cascade.seconds)
