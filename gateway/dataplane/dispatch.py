"""Step 4: pick a replica and send. Tried again only while nothing has come back.

A replica that cannot be reached is passed over for the next; a kept connection that the engine
closed under us is replaced once by a new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.errors import BackendError, ConnectError, StaleConnectionError
from gateway.dataplane.active_request import ActiveRequest, ClientGoneError
from gateway.errors import UnavailableError
from routing.picker import order_by_load

if TYPE_CHECKING:
    from backends.engine_connection import EngineConnection
    from gateway.dataplane.serving_table import ServedReplica, ServedRoute

_RETRY_AFTER_SECONDS = 2.0


class Dispatched:
    """A reply under way: its connection, whose status and headers are in. Release it."""

    __slots__ = ("_endpoint", "connection")

    def __init__(self, replica: ServedReplica, connection: EngineConnection) -> None:
        self._endpoint = replica.endpoint
        self.connection = connection

    def release(self) -> None:
        """Give the connection back: kept if its reply is whole, closed at once if not."""
        self._endpoint.release(self.connection)


async def dispatch(
    request: ActiveRequest, route: ServedRoute, body: bytes, trace: bytes
) -> Dispatched:
    """Send ``body`` to a replica; return when its reply begins.

    ``trace`` holds whole header lines to pass on. Raises :class:`UnavailableError` when no replica
    can be reached, and a :class:`BackendError` when one fails later.
    """
    if not route.replicas:
        raise UnavailableError(
            f"No engine serves {route.route.name!r} at the moment.",
            code="no_replica",
            retry_after_seconds=_RETRY_AFTER_SECONDS,
        )
    failure: BackendError | None = None
    for replica in order_by_load(route.replicas):
        try:
            return await _send(request, replica, body, trace)
        except (ConnectError, StaleConnectionError) as error:
            failure = error
        _check_client(request)
    raise UnavailableError(
        f"No engine of {route.route.name!r} can be reached.",
        code="engine_unreachable",
        retry_after_seconds=_RETRY_AFTER_SECONDS,
    ) from failure


def _check_client(request: ActiveRequest) -> None:
    if request.is_client_gone:
        raise ClientGoneError("The client left.")


async def _send(
    request: ActiveRequest, replica: ServedReplica, body: bytes, trace: bytes
) -> Dispatched:
    """Try one replica, on a second connection if a kept one turns out to be closed."""
    endpoint = replica.endpoint
    head = b"%bx-request-id: %b\r\n%bcontent-length: %d\r\n\r\n" % (
        replica.heads[request.identity.endpoint],
        request.identity.request_id.encode(),
        trace,
        len(body),
    )
    request.attempts += 1
    request.replica_id = replica.id
    for is_fresh in (False, True):
        connection = await endpoint.acquire(is_fresh=is_fresh)
        request.connection = connection
        try:
            _check_client(request)
            await connection.send(head, body)
        except StaleConnectionError:
            endpoint.release(connection)
            if is_fresh:
                raise
            continue
        except BaseException:
            connection.close()
            endpoint.release(connection)
            raise
        return Dispatched(replica, connection)
    raise AssertionError("unreachable: the second try returns or raises")
