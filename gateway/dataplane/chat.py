"""One generation request, from arrival to its close record. Start reading here.

The steps, each a verb with a file of its own:

1. authenticate   who is asking?
2. choose_route   what do they mean by the model's name?
                  (with an Idempotency-Key, all that follows runs once: idempotency/)
3. admit          limits and money, all or nothing; the open record is in the journal, and from
                  here on the request is settled on every path
4. wait_turn      a place, if the deployment is saturated
   dispatch       pick a replica, send, wait for its reply's head
5. relay          bytes to the client (streams), or the whole answer
6. settle         the close record is in the journal, before the reply's end leaves

The billing worker takes it from there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from backends.errors import BackendError
from billing.usage.event import RequestStatus
from gateway.dataplane.active_request import ActiveRequest, ClientGoneError
from gateway.dataplane.admit import Arrival, admit
from gateway.dataplane.answer import STREAM_HEADERS, WholeAnswer, error_answer, request_id_line
from gateway.dataplane.authenticate import authenticate
from gateway.dataplane.choose_route import choose_route
from gateway.dataplane.dispatch import dispatch
from gateway.dataplane.engine_body import engine_body
from gateway.dataplane.engine_errors import backend_error
from gateway.dataplane.read_request import parse_request, read_body
from gateway.dataplane.relay import StreamRelay
from gateway.dataplane.stream_editor import StreamEditor
from gateway.dataplane.stream_usage import StreamUsage
from gateway.dataplane.wait_turn import wait_turn
from gateway.dataplane.whole_reply import whole_answer
from gateway.errors import ApiError
from gateway.openai_schema.requests import CompletionRequest

if TYPE_CHECKING:
    from backends.engine_connection import EngineConnection
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.http.head import HeaderLines, RequestHeaders
    from gateway.dataplane.plane import DataPlane
    from gateway.dataplane.queue_slot import Slot
    from gateway.dataplane.serving_table import ServedRoute
    from gateway.openai_schema.requests import GenerationRequest

_TRACE_HEADERS = (b"traceparent", b"tracestate")


async def serve_generation(
    plane: DataPlane,
    exchange: HttpExchange,
    *,
    endpoint: str,
    request_id: str,
    arrived_at_us: int,
) -> None:
    """Serve ``POST /v1/chat/completions`` or ``/v1/completions``.

    Raises :class:`ApiError` for what is refused before admission; it has cost nothing.
    """
    table = plane.serving_table()
    caller = authenticate(exchange.headers, table)
    body = await read_body(exchange, plane.config.max_body_bytes)
    wanted = parse_request(body, endpoint)
    route = choose_route(table, caller, wanted.model)
    arrival = Arrival(caller, route, wanted, body, endpoint, request_id, arrived_at_us)
    key = exchange.headers.get(b"idempotency-key")
    if key is None:
        await _generate(plane, arrival, exchange)
    else:
        await plane.idempotency.serve_once(
            exchange,
            key=key,
            scope=caller.project_id,
            endpoint=endpoint,
            body=body,
            request_id=request_id,
            run=partial(_generate, plane, arrival),
        )


async def _generate(plane: DataPlane, arrival: Arrival, exchange: HttpExchange) -> None:
    """Take a request through steps 3 to 6."""
    route, wanted = arrival.route, arrival.wanted
    to_engine = engine_body(arrival.body, wanted, route)
    request = await admit(plane, exchange, arrival)
    answer: WholeAnswer | None = None  # to send once the request is settled; streams need none
    slot: Slot | None = None
    try:
        if route.queue is not None:
            slot = await wait_turn(
                request,
                route,
                route.queue,
                exchange,
                stream_headers=_stream_lines(request, route),
                keepalive_seconds=plane.config.queue_keepalive_seconds,
            )
        connection = await dispatch(request, route, to_engine, _trace_lines(exchange.headers))
        try:
            if _is_stream(connection):
                relay = _stream_relay(
                    plane, request, connection, exchange=exchange, wanted=wanted, route=route
                )
                await relay.run()
            else:
                limit_bytes = plane.config.max_reply_bytes
                reply = connection.take_whole() or await connection.read_all(limit_bytes)
                answer = whole_answer(
                    request,
                    connection,
                    reply,
                    route=route,
                    caller=arrival.caller,
                    limit_bytes=limit_bytes,
                )
        finally:
            request.release()
    except (ApiError, BackendError) as error:
        answer = _answer_failure(request, error)
    finally:
        if slot is not None:
            slot.leave(request.real_cost)
        request.settle()
    if answer is not None:
        answer.headers += _decision_lines(request, route)
        answer.send(exchange, arrival.request_id)


def _is_stream(connection: EngineConnection) -> bool:
    return connection.status == 200 and connection.headers.get(b"content-type", b"").startswith(
        b"text/event-stream"
    )


def _answer_failure(request: ActiveRequest, error: ApiError | BackendError) -> WholeAnswer | None:
    """Conclude what failed after admission; return what the client is told, if it is there."""
    if isinstance(error, ClientGoneError):
        request.conclude(RequestStatus.CLIENT_CLOSED, 499, error_code="client_closed")
        return None
    if isinstance(error, BackendError):
        error = backend_error(error)
        request.conclude(RequestStatus.FAILED, error.status, error_code=error.code)
    elif request.error_code == "internal_error":  # nobody has said more yet
        request.conclude(RequestStatus.FAILED, error.status, error_code=error.code)
    return error_answer(error)


def _stream_relay(
    plane: DataPlane,
    request: ActiveRequest,
    connection: EngineConnection,
    *,
    exchange: HttpExchange,
    wanted: GenerationRequest,
    route: ServedRoute,
) -> StreamRelay:
    return StreamRelay(
        request,
        connection,
        editor=_stream_editor(wanted, route),
        max_frame_bytes=plane.config.max_frame_bytes,
        route=route,
        exchange=exchange,
        headers=_stream_lines(request, route),
    )


def _stream_editor(wanted: GenerationRequest, route: ServedRoute) -> StreamEditor:
    options = wanted.stream_options
    wants_usage = options is not None and bool(options.include_usage)
    return StreamEditor(
        usage=StreamUsage(
            choices_per_prompt=max(wanted.n or 1, 1),
            prompts=wanted.prompts if isinstance(wanted, CompletionRequest) else 1,
        ),
        rename=route.rename,
        hides_total=not wants_usage,
        hides_continuous=not (
            wants_usage and options is not None and options.continuous_usage_stats
        ),
    )


def _stream_lines(request: ActiveRequest, route: ServedRoute) -> HeaderLines:
    return (
        request_id_line(request.identity.request_id)
        + STREAM_HEADERS
        + _decision_lines(request, route)
    )


def _decision_lines(request: ActiveRequest, route: ServedRoute) -> HeaderLines:
    """Return what was decided, and how the Caller's limits stand."""
    decided = route.decision_lines if request.replica is None else request.replica.decision_lines
    return decided if request.reservation is None else decided + request.reservation.lines


def _trace_lines(headers: RequestHeaders) -> bytes:
    """Return the W3C trace context as header lines; no other client header reaches an engine."""
    lines = b""
    for name in _TRACE_HEADERS:
        value = headers.get(name)
        if value is not None and value.isascii() and value.decode().isprintable():
            lines += b"%b: %b\r\n" % (name, value)
    return lines
