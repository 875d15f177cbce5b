"""One generation request, from arrival to its close record. Start reading here.

The steps, each a verb with a file of its own:

1. authenticate   who is asking?
2. choose_route   what do they mean by the model's name?
3. admit          the open record is in the journal; from here on it is settled on every path
4. dispatch       pick a replica, send, wait for its reply's head
5. relay          bytes to the client (streams), or the whole answer
6. settle         the close record is in the journal, before the reply's end leaves

The billing worker takes it from there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from backends.errors import BackendError, MalformedReplyError
from billing.usage.event import RequestStatus
from gateway.dataplane.active_request import ActiveRequest, ClientGoneError
from gateway.dataplane.admit import admit
from gateway.dataplane.answer import STREAM_HEADERS, WholeAnswer, error_answer
from gateway.dataplane.authenticate import authenticate
from gateway.dataplane.choose_route import choose_route
from gateway.dataplane.dispatch import Dispatched, dispatch
from gateway.dataplane.engine_body import engine_body
from gateway.dataplane.engine_errors import backend_error
from gateway.dataplane.read_request import parse_request, read_body
from gateway.dataplane.relay import StreamRelay
from gateway.dataplane.stream_editor import StreamEditor
from gateway.dataplane.stream_usage import StreamUsage
from gateway.dataplane.whole_reply import read_whole_reply
from gateway.errors import ApiError
from gateway.openai_schema.requests import CompletionRequest

if TYPE_CHECKING:
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.http.head import HeaderList, RequestHeaders
    from gateway.dataplane.plane import DataPlane
    from gateway.dataplane.serving_table import ServedRoute
    from gateway.openai_schema.requests import GenerationRequest
    from gateway.snapshot.model import ApiKeyEntry

_TRACE_HEADERS = ("traceparent", "tracestate")
_LOG = logging.getLogger(__name__)


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
    to_engine = engine_body(body, wanted, route)
    request = admit(
        journal=plane.journal,
        caller=caller,
        route=route,
        request_id=request_id,
        endpoint=endpoint,
        is_stream=bool(wanted.stream),
        arrived_at_us=arrived_at_us,
        exchange=exchange,
        active=plane.active,
        loop=plane.loop,
    )
    generation = _Generation(
        plane=plane,
        request=request,
        wanted=wanted,
        route=route,
        caller=caller,
        exchange=exchange,
    )
    try:
        answer = await generation.run(to_engine, _trace_headers(exchange.headers))
    finally:
        request.settle()
    if answer is not None:
        answer.headers += generation.decision_headers()
        answer.send(exchange, request_id)


class _Generation:
    """An admitted request on its way through steps 4 and 5."""

    __slots__ = ("_caller", "_exchange", "_plane", "_request", "_route", "_wanted")

    def __init__(
        self,
        *,
        plane: DataPlane,
        request: ActiveRequest,
        wanted: GenerationRequest,
        route: ServedRoute,
        caller: ApiKeyEntry,
        exchange: HttpExchange,
    ) -> None:
        self._plane = plane
        self._request = request
        self._wanted = wanted
        self._route = route
        self._caller = caller
        self._exchange = exchange

    async def run(self, body: bytes, trace: bytes) -> WholeAnswer | None:
        """Return the answer to send once the request is settled; None if it was streamed."""
        request = self._request
        try:
            dispatched = await dispatch(request, self._route, body, trace)
            try:
                return await self._relay(dispatched)
            finally:
                dispatched.release()
        except ClientGoneError:
            request.conclude(RequestStatus.CLIENT_CLOSED, 499, error_code="client_closed")
            return None
        except ApiError as error:
            if request.error_code == "internal_error":  # nobody has said more yet
                request.conclude(RequestStatus.FAILED, error.status, error_code=error.code)
            return error_answer(error)
        except BackendError as error:
            told = backend_error(error)
            request.conclude(RequestStatus.FAILED, told.status, error_code=told.code)
            return error_answer(told)

    async def _relay(self, dispatched: Dispatched) -> WholeAnswer | None:
        connection = dispatched.connection
        content_type = connection.headers.get(b"content-type", b"")
        if connection.status != 200 or not content_type.startswith(b"text/event-stream"):
            return await read_whole_reply(
                self._request,
                connection,
                route=self._route,
                caller=self._caller,
                limit_bytes=self._plane.config.max_reply_bytes,
            )
        if connection.headers.get(b"content-encoding", b"identity") != b"identity":
            raise MalformedReplyError("The engine's stream has an encoding we did not ask for.")
        await StreamRelay(
            self._request,
            connection,
            editor=self._stream_editor(),
            max_frame_bytes=self._plane.config.max_frame_bytes,
            route=self._route,
            exchange=self._exchange,
            headers=[
                ("x-request-id", self._request.identity.request_id),
                *STREAM_HEADERS,
                *self.decision_headers(),
            ],
        ).run()
        return None

    def _stream_editor(self) -> StreamEditor:
        wanted = self._wanted
        options = wanted.stream_options
        wants_usage = options is not None and bool(options.include_usage)
        return StreamEditor(
            usage=StreamUsage(
                choices_per_prompt=max(wanted.n or 1, 1),
                prompts=wanted.prompts if isinstance(wanted, CompletionRequest) else 1,
            ),
            rename=self._route.rename,
            hides_total=not wants_usage,
            hides_continuous=not (
                wants_usage and options is not None and options.continuous_usage_stats
            ),
        )

    def decision_headers(self) -> HeaderList:
        """Return what was decided, for whoever wants to see it."""
        headers = list(self._route.decision_headers)
        if self._request.replica_id is not None:
            headers.append(("x-forebay-replica", self._request.replica_id))
        return headers


def _trace_headers(headers: RequestHeaders) -> bytes:
    """Return the W3C trace context as header lines; no other client header reaches an engine."""
    lines = b""
    for name in _TRACE_HEADERS:
        value = headers.get(name)
        if value is not None and value.isprintable() and value.isascii():
            lines += f"{name}: {value}\r\n".encode()
    return lines
