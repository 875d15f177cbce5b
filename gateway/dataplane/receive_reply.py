"""Step 5: take what the replica answers, as a stream or whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.dataplane.answer import stream_lines
from gateway.dataplane.relay import StreamRelay
from gateway.dataplane.reply_kind import editor_for, is_stream
from gateway.dataplane.whole_reply import whole_answer

if TYPE_CHECKING:
    from backends.engine_connection import EngineConnection
    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.admit import Arrival
    from gateway.dataplane.answer import WholeAnswer
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.plane import DataPlane


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
    route, gate = request.route, arrival.gate
    if gate is not None and gate.takes(request):
        return await gate.receive(plane, request, exchange, connection)
    if is_stream(connection):
        headers = stream_lines(request, exchange)
        relay = StreamRelay(
            request,
            connection,
            editor=editor_for(arrival.wanted, route),
            max_frame_bytes=plane.config.max_frame_bytes,
            route=route,
            exchange=exchange,
            headers=headers if gate is None else headers + gate.line,
        )
        await relay.run()
        return None
    limit_bytes = plane.config.max_reply_bytes
    reply = connection.take_whole() or await connection.read_all(limit_bytes)
    answer = whole_answer(
        request, connection, reply, route=route, caller=arrival.caller, limit_bytes=limit_bytes
    )
    if gate is not None:
        answer.headers += gate.line
    return answer
