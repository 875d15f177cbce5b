"""Step 5: take what the replica answers, as a stream or whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.dataplane.answer import stream_lines
from gateway.dataplane.relay import StreamRelay
from gateway.dataplane.stream_editor import StreamEditor
from gateway.dataplane.stream_usage import StreamUsage
from gateway.dataplane.whole_reply import whole_answer
from gateway.openai_schema.requests import CompletionRequest

if TYPE_CHECKING:
    from backends.engine_connection import EngineConnection
    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.admit import Arrival
    from gateway.dataplane.answer import WholeAnswer
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.plane import DataPlane
    from gateway.dataplane.serving_table import ServedRoute
    from gateway.openai_schema.requests import GenerationRequest


async def receive_reply(
    plane: DataPlane,
    arrival: Arrival,
    request: ActiveRequest,
    exchange: HttpExchange,
    connection: EngineConnection,
) -> WholeAnswer | None:
    """Relay a stream to its end, or return the whole answer; the request is concluded either way.

    Raises :class:`gateway.errors.ApiError` or :class:`backends.errors.BackendError`, only while
    nothing of the answer was sent.
    """
    route = request.route
    if _is_stream(connection):
        relay = StreamRelay(
            request,
            connection,
            editor=_stream_editor(arrival.wanted, route),
            max_frame_bytes=plane.config.max_frame_bytes,
            route=route,
            exchange=exchange,
            headers=stream_lines(request, exchange),
        )
        await relay.run()
        return None
    limit_bytes = plane.config.max_reply_bytes
    reply = connection.take_whole() or await connection.read_all(limit_bytes)
    return whole_answer(
        request, connection, reply, route=route, caller=arrival.caller, limit_bytes=limit_bytes
    )


def _is_stream(connection: EngineConnection) -> bool:
    return connection.status == 200 and connection.headers.get(b"content-type", b"").startswith(
        b"text/event-stream"
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
