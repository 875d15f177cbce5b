"""``POST /v1/embeddings``: the way of a generation (:mod:`gateway.dataplane.chat`), but for three things.

Only engines that can embed are asked. The input alone is counted. And a route that chooses among
tiers has no embeddings: vectors of two models cannot be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from billing.usage.event import RequestStatus, TokenUsage
from gateway.dataplane.chat import generate, serve_generation
from gateway.dataplane.engine_errors import lacks_endpoint
from gateway.dataplane.whole_reply import plain_body, read_usage, whole_answer
from gateway.errors import InvalidRequestError

if TYPE_CHECKING:
    from backends.engine_connection import EngineConnection
    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.admit import Arrival
    from gateway.dataplane.answer import WholeAnswer
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.http.head import HeaderLines
    from gateway.dataplane.plane import DataPlane
    from gateway.dataplane.served_route import ServedRoute
    from gateway.snapshot.model import ApiKeyEntry

_ENDPOINT = _FEATURE = "embeddings"


async def serve_embeddings(
    plane: DataPlane, exchange: HttpExchange, *, request_id: str, arrived_at_us: int
) -> None:
    """Serve ``POST /v1/embeddings``. Raises as :func:`serve_generation`."""
    await serve_generation(
        plane,
        exchange,
        endpoint=_ENDPOINT,
        request_id=request_id,
        arrived_at_us=arrived_at_us,
        run=_embed,
    )


async def _embed(plane: DataPlane, arrival: Arrival, exchange: HttpExchange) -> None:
    route = arrival.route
    features = route.fleet.deployment.capabilities.features
    if route.tiers is not None or (features is not None and _FEATURE not in features):
        raise _cannot_embed(route)
    await generate(plane, arrival._replace(gate=VectorGate(arrival.caller)), exchange)


def _cannot_embed(route: ServedRoute) -> InvalidRequestError:
    name = route.asked.name
    problem = f"The model {name!r} makes no embeddings."
    if route.tiers is not None:
        problem = (
            f"The model {name!r} stands for several, whose embeddings cannot be compared: ask one"
            " of them by its own name."
        )
    return InvalidRequestError(problem, code="unsupported_by_model", param="model")


class VectorGate:
    """Takes each reply of a request for embeddings: whole, and metered by its input."""

    __slots__ = ("_caller",)

    line: HeaderLines = b""

    def __init__(self, caller: ApiKeyEntry) -> None:
        self._caller = caller

    def takes(self, _request: ActiveRequest) -> bool:
        """Tell that the reply is for this gate; all are."""
        return True

    async def receive(
        self,
        plane: DataPlane,
        request: ActiveRequest,
        _exchange: HttpExchange,
        connection: EngineConnection,
    ) -> WholeAnswer:
        """As :func:`gateway.dataplane.receive_reply.receive_reply`."""
        route, limit_bytes = request.route, plane.config.max_reply_bytes
        reply = connection.take_whole() or await connection.read_all(limit_bytes)
        reply = plain_body(connection, reply, limit_bytes)
        if lacks_endpoint(connection.status, reply, route):
            error = _cannot_embed(route)
            request.conclude(RequestStatus.REJECTED, error.status, error_code=error.code)
            raise error
        return whole_answer(
            request,
            connection,
            reply,
            route=route,
            caller=self._caller,
            limit_bytes=limit_bytes,
            count=_count_input,
        )


def _count_input(reply: bytes) -> TokenUsage:
    """Return the counts; most engines name no output, which is none here. Raises as read_usage."""
    usage = read_usage(reply)
    if usage.input_tokens is None:
        return usage
    return TokenUsage(usage.input_tokens, usage.cached_input_tokens, 0)
