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


async def dispatch(
    request: ActiveRequest, route: ServedRoute, body: bytes, trace: bytes
) -> EngineConnection:
    """Send ``body`` to a replica; return the connection when its reply's head is in.

    ``request.replica`` is whose it is; whoever gets the connection releases it there. ``trace``
    holds whole header lines to pass on. Raises :class:`UnavailableError` when no replica can be
    reached, and a :class:`BackendError` when one fails later.
    """
    failure: BackendError | None = None
    for replica in order_by_load(route.replicas):
        endpoint = replica.endpoint
        request.attempts += 1
        request.replica = replica
        head = _request_head(request, replica, body, trace)
        connection = endpoint.take_idle()
        while True:  # once, and once more when a kept connection turns out to be closed
            is_kept = connection is not None
            try:
                if connection is None:
                    connection = await endpoint.connect()
            except ConnectError as error:
                failure = error
                break
            request.connection = connection
            try:
                _check_client(request)
                await connection.send(head, body)
            except StaleConnectionError as error:
                endpoint.release(connection)
                failure, connection = error, None
                if not is_kept:
                    break
            except BaseException:
                endpoint.release(connection)
                raise
            else:
                return connection
        _check_client(request)
    if failure is None:
        raise UnavailableError(
            f"No engine serves {route.route.name!r} at the moment.",
            code="no_replica",
            retry_after_seconds=_RETRY_AFTER_SECONDS,
        )
    raise UnavailableError(
        f"No engine of {route.route.name!r} can be reached.",
        code="engine_unreachable",
        retry_after_seconds=_RETRY_AFTER_SECONDS,
    ) from failure


def _check_client(request: ActiveRequest) -> None:
    if request.is_client_gone:
        raise ClientGoneError("The client left.")


def _request_head(
    request: ActiveRequest, replica: ServedReplica, body: bytes, trace: bytes
) -> bytes:
    return b"%bx-request-id: %b\r\n%bcontent-length: %d\r\n\r\n" % (
        replica.heads[request.identity.endpoint],
        request.identity.request_id.encode(),
        trace,
        len(body),
    )
