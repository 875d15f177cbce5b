"""What may stand between a reply and its client; nothing does for most requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from backends.engine_connection import EngineConnection
    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.answer import WholeAnswer
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.http.head import HeaderLines
    from gateway.dataplane.plane import DataPlane


class ReplyGate(Protocol):
    """Takes a reply in the place of the usual relay, as long as it has not decided."""

    @property
    def line(self) -> HeaderLines:
        """What every answer of this request says of the decision."""

    def takes(self, request: ActiveRequest) -> bool:
        """Tell whether the reply that comes now is for this gate."""

    async def receive(
        self,
        plane: DataPlane,
        request: ActiveRequest,
        exchange: HttpExchange,
        connection: EngineConnection,
    ) -> WholeAnswer | None:
        """As :func:`gateway.dataplane.receive_reply.receive_reply`.

        Raises :class:`gateway.dataplane.ended_errors.LowConfidenceError` for a reply that it gives up.
        """
