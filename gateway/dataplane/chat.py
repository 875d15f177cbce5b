"""One request to an engine, from arrival to its close record. Start reading here.

The steps, each a verb with a file of its own:

1. authenticate   who is asking?
2. choose_route   what do they mean by the model's name?
                  (with an Idempotency-Key, all that follows runs once: idempotency/)
   choose_tier    which of its tiers serves, where the route has some
3. admit          limits and money, all or nothing; the open record is in the journal, and from
                  here on the request is settled on every path
4. try_routes     await_place: a place, if the deployment is saturated
                  dispatch: pick a replica, send, wait for its reply's head
5.                receive_reply: bytes to the client (streams), or the whole answer;
                  both again, elsewhere, if that fails before anything of the answer was sent
6. settle         the close record is in the journal, before the reply's end leaves

The billing worker takes it from there.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from backends.errors import BackendError
from billing.usage.event import RequestStatus
from gateway.dataplane.active_request import ActiveRequest
from gateway.dataplane.admit import Arrival, admit
from gateway.dataplane.answer import WholeAnswer, decision_lines, error_answer
from gateway.dataplane.authenticate import authenticate
from gateway.dataplane.cascade.plan import plan_cascade
from gateway.dataplane.cascade.try_cascade import try_cascade
from gateway.dataplane.choose_route import choose_route
from gateway.dataplane.choose_tier import choose_tier
from gateway.dataplane.ended_errors import ClientGoneError
from gateway.dataplane.engine_body import engine_body
from gateway.dataplane.engine_errors import backend_error
from gateway.dataplane.read_request import (
    ByteOrderMarkError,
    parse_request,
    read_body,
    without_mark,
)
from gateway.dataplane.request_log.line import RefusedRequest
from gateway.dataplane.shadow.runner import begin_look, sample_request, tap_answer
from gateway.dataplane.standing import add_standing, count_replay
from gateway.dataplane.try_routes import try_routes
from gateway.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.plane import DataPlane
    from gateway.dataplane.serving_table import ServedRoute
    from gateway.dataplane.shadow.sample import Sample
    from gateway.openai_schema.requests import GenerationRequest
    from gateway.snapshot.model import ApiKeyEntry

# We have tried elsewhere already: SDKs that do so by themselves would multiply it.
_NO_MORE_RETRIES = b"x-should-retry: false\r\n"


async def serve_generation(
    plane: DataPlane,
    exchange: HttpExchange,
    *,
    endpoint: str,
    request_id: str,
    arrived_at_us: int,
    run: Callable[[DataPlane, Arrival, HttpExchange], Awaitable[None]],
) -> None:
    """Serve a ``POST`` that an engine answers; ``run`` is :func:`generate` or begins before it.

    Raises :class:`ApiError` for what is refused before admission; it has cost nothing.
    """
    table = plane.serving_table()
    caller = authenticate(exchange.headers, table)
    route: ServedRoute | None = None
    wanted: GenerationRequest | None = None
    try:
        body = await read_body(exchange, plane.config.max_body_bytes)
        try:
            wanted = parse_request(body, endpoint)
        except ByteOrderMarkError:
            body = without_mark(body)
            wanted = parse_request(body, endpoint)
        route = choose_route(table, caller, wanted.model)
        arrival = Arrival(caller, route, wanted, body, endpoint, request_id, arrived_at_us)
        key = exchange.headers.get(b"idempotency-key")
        if key is None:
            await run(plane, arrival, exchange)
        else:
            await plane.idempotency.serve_once(
                exchange,
                key=key,
                scope=caller.project_id,
                endpoint=endpoint,
                body=body,
                request_id=request_id,
                run=partial(run, plane, arrival),
                count_replay=partial(count_replay, plane, arrival),
            )
    except ApiError as error:
        add_standing(error, plane, caller, route)
        _log_refusal(
            plane,
            error,
            caller,
            route=route,
            wanted=wanted,
            endpoint=endpoint,
            request_id=request_id,
            arrived_at_us=arrived_at_us,
        )
        raise


def _log_refusal(
    plane: DataPlane,
    error: ApiError,
    caller: ApiKeyEntry,
    *,
    route: ServedRoute | None,
    wanted: GenerationRequest | None,
    endpoint: str,
    request_id: str,
    arrived_at_us: int,
) -> None:
    """Put a known Caller's refused request into the request log, if there is one."""
    if plane.request_log is None:
        return
    plane.request_log.refused(
        RefusedRequest(
            request_id=request_id,
            organization_id=caller.organization_id,
            project_id=caller.project_id,
            api_key_id=caller.id,
            endpoint=endpoint,
            is_stream=None if wanted is None else bool(wanted.stream),
            # A name that nothing has may be any text.
            requested_route=None if wanted is None or route is None else wanted.model,
            route=None if route is None else route.route.name,
            http_status=error.status,
            error_code=error.code,
            arrived_at_us=arrived_at_us,
            refused_at_us=time.time_ns() // 1000,
        )
    )


async def generate(plane: DataPlane, arrival: Arrival, exchange: HttpExchange) -> None:
    """Take a request through steps 3 to 6, with the choice of a tier before them."""
    sample: Sample | None = None
    asked = arrival.route
    if asked.tiers is not None:
        arrival = await choose_tier(plane, arrival, asked.tiers, exchange.headers)
        if asked.route.shadow is not None:
            sample = sample_request(plane, asked, arrival)
            if sample is not None:
                exchange = tap_answer(plane, sample, exchange)
    to_engine = engine_body(arrival.body, arrival.wanted, arrival.route)
    cascade = None if asked.tiers is None else plan_cascade(arrival, asked.tiers, to_engine)
    request = await admit(plane, exchange, arrival)
    answer: WholeAnswer | None = None  # to send once the request is settled; streams need none
    try:
        if cascade is None:
            answer = await try_routes(plane, arrival, to_engine, request, exchange)
        else:
            answer = await try_cascade(plane, cascade, request, exchange)
    except (ApiError, BackendError) as error:
        answer = _answer_failure(request, error)
    finally:
        request.settle()
    if answer is not None:
        answer.headers += decision_lines(request, exchange)
        answer.send(exchange, arrival.request_id)
    if sample is not None:
        begin_look(plane, sample, request, answer)


def _answer_failure(request: ActiveRequest, error: ApiError | BackendError) -> WholeAnswer | None:
    """Conclude what failed after admission; return what the client is told, if it is there."""
    if isinstance(error, ClientGoneError):
        request.conclude(RequestStatus.CLIENT_CLOSED, 499, error_code="client_closed")
        return None
    if isinstance(error, BackendError):
        error = backend_error(error)
        request.conclude(RequestStatus.FAILED, error.status, error_code=error.code)
    elif request.error_code == "internal_error":  # nobody has said more yet
        status = RequestStatus.REJECTED if error.status < 500 else RequestStatus.FAILED
        request.conclude(status, error.status, error_code=error.code)
    if request.attempts > 1 and error.status in (502, 504):
        error.lines += _NO_MORE_RETRIES
    return error_answer(error)
