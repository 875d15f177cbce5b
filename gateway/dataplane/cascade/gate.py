"""Between a tier that answers first and its client: its reply is judged, then relayed or given up."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from backends.errors import BackendError
from gateway.dataplane.answer import stream_lines
from gateway.dataplane.cascade.gated_relay import GatedRelay
from gateway.dataplane.cascade.logprobs import LogprobEditor, read_logprobs
from gateway.dataplane.cascade.plan import CascadeOutcome
from gateway.dataplane.reply_kind import editor_for, is_stream
from gateway.dataplane.told_errors import tells_error
from gateway.dataplane.whole_reply import plain_body, read_usage, whole_answer
from gateway.errors import ApiError

if TYPE_CHECKING:
    from backends.engine_connection import EngineConnection
    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.answer import WholeAnswer
    from gateway.dataplane.cascade.plan import Cascade
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.http.head import HeaderLines
    from gateway.dataplane.plane import DataPlane

_GIVEN_UP = (CascadeOutcome.SWITCHED, CascadeOutcome.RETURNED)


class CascadeGate:
    """Stands before one request's tier until its cascade is decided."""

    __slots__ = ("_cascade",)

    def __init__(self, cascade: Cascade) -> None:
        self._cascade = cascade

    @property
    def line(self) -> HeaderLines:
        """What every answer of this request says of the decision."""
        return self._cascade.line

    def takes(self, request: ActiveRequest) -> bool:
        """Tell whether the reply that comes now is the tier's, and to be judged.

        Of one that was kept and broke before any of it was sent, the next is judged again.
        """
        cascade = self._cascade
        return request.route is cascade.arrival.route and cascade.outcome not in _GIVEN_UP

    async def receive(
        self,
        plane: DataPlane,
        request: ActiveRequest,
        exchange: HttpExchange,
        connection: EngineConnection,
    ) -> WholeAnswer | None:
        """Relay a stream to its end, or return the whole answer, if it is kept.

        Raises as :func:`gateway.dataplane.receive_reply.receive_reply`, and
        :class:`gateway.dataplane.ended_errors.LowConfidenceError`.
        """
        try:
            return await self._receive(plane, request, exchange, connection)
        except (ApiError, BackendError):
            if self._cascade.outcome not in _GIVEN_UP:
                self._cascade.forget()  # it was no answer
            raise

    async def _receive(
        self,
        plane: DataPlane,
        request: ActiveRequest,
        exchange: HttpExchange,
        connection: EngineConnection,
    ) -> WholeAnswer | None:
        cascade = self._cascade
        arrival, route = cascade.arrival, request.route
        tokens = cascade.begin()
        hides = cascade.hides_logprobs
        if is_stream(connection):
            make = partial(LogprobEditor, hides_logprobs=hides, tokens=tokens)
            relay = GatedRelay(
                plane,
                cascade,
                request,
                connection,
                editor=editor_for(arrival.wanted, route, make),
                tokens=tokens,
                route=route,
                exchange=exchange,
                headers=stream_lines(request, exchange),
            )
            await relay.run()
            return None
        limit_bytes = plane.config.max_reply_bytes
        reply = connection.take_whole() or await connection.read_all(limit_bytes)
        if connection.status == 200:
            reply = plain_body(connection, reply, limit_bytes)
        if connection.status == 200 and not (b'"error"' in reply and tells_error(reply)):
            usage = read_usage(reply)
            reply = read_logprobs(reply, tokens, hides=hides)
            await cascade.judge(
                plane, request, tokens, usage=usage, held_since=request.clock(), is_whole=True
            )
        answer = whole_answer(
            request, connection, reply, route=route, caller=arrival.caller, limit_bytes=limit_bytes
        )
        answer.headers += cascade.line
        return answer
