"""Step 4: pick a replica and send. Here tried again only while nothing was accepted.

A replica that cannot be reached is passed over for another; a kept connection that the engine
closed under us is replaced once by a new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.errors import (
    BackendError,
    ConnectError,
    EngineAsleepError,
    StaleConnectionError,
)
from gateway.dataplane.active_request import ActiveRequest
from gateway.dataplane.ended_errors import ClientGoneError, GatewayStoppedError
from gateway.errors import UnavailableError
from routing.outcome import Outcome

if TYPE_CHECKING:
    from backends.engine_connection import EngineConnection
    from gateway.dataplane.fleet import ServedReplica
    from gateway.dataplane.served_route import ServedRoute
    from routing.types import RequestShape

_RETRY_AFTER_SECONDS = 2.0
_CONNECT_ATTEMPTS = 8  # of hundreds of replicas, so many that are down are tried by one request


class NoReplicaError(UnavailableError):
    """No engine took the request."""


class UnsupportedError(NoReplicaError):
    """None of the route's engines does what is asked, as its deployment says; a fallback's may."""

    status = 400
    type = "invalid_request_error"


async def dispatch(
    request: ActiveRequest,
    body: bytes,
    trace: bytes,
    *,
    shape: RequestShape,
    tried: list[str],
) -> EngineConnection:
    """Send ``body`` to a replica of ``request.route``; return the connection when its reply's head is in.

    Whoever calls ends the attempt, whether it gets the connection or an error. ``trace``
    holds whole header lines to pass on. Replicas in ``tried`` are passed over, and those that are
    tried here are added to it. Raises :class:`NoReplicaError` when no replica can be reached, or
    none does what is asked, and a :class:`BackendError` when one fails later.
    """
    route = request.route
    fleet = route.fleet
    failure: BackendError | None = None
    for _ in range(_CONNECT_ATTEMPTS):
        if request.is_client_gone or request.is_settled:
            _check_client(request)
        now = request.clock()
        decision = fleet.choose(shape, now, tried)
        if decision is None:
            break
        replica = fleet.replicas[decision.view.replica_id]
        tried.append(replica.id)
        request.begin_attempt(fleet, replica, decision, shape, now)
        identity = request.identity
        head = b"%bx-request-id: %b\r\n%bcontent-length: %d\r\n\r\n" % (
            replica.heads[identity.endpoint],
            identity.request_id.encode(),
            trace,
            len(body),
        )
        try:
            connection = replica.endpoint.take_idle()
            if connection is None:
                return await _send_anew(request, replica, head, body)
            request.connection = connection
            if request.reservation is not None:
                request.reservation.is_sent = True  # an engine may have it: it is not given back
            try:
                await connection.send(head, body)
            except StaleConnectionError:
                request.connection = None
                replica.endpoint.release(connection)
                return await _send_anew(request, replica, head, body)
            else:
                return connection
        except (ConnectError, EngineAsleepError, StaleConnectionError) as error:
            failure = error
            is_asleep = isinstance(error, EngineAsleepError)
            request.end_attempt(Outcome.NOTHING if is_asleep else Outcome.FAILED)
            if replica.watch is not None:
                replica.watch.note_connect_failure()
    _check_client(request)
    raise _no_replica(route, shape, failure) from failure


def _no_replica(
    route: ServedRoute, shape: RequestShape, failure: BackendError | None
) -> NoReplicaError:
    """Return why nobody took the request; ``failure``: of the last that was asked."""
    name = route.asked.name
    if isinstance(failure, EngineAsleepError):
        return NoReplicaError(
            f"The engine of {name!r} sleeps.",
            code="engine_asleep",
            retry_after_seconds=_RETRY_AFTER_SECONDS,
        )
    if failure is not None:
        return unreachable(route)
    features = route.fleet.deployment.capabilities.features
    missing = [] if features is None else sorted(shape.needs.difference(features))
    if missing:
        return UnsupportedError(
            f"The model {name!r} does not offer {', '.join(missing)}.",
            code="unsupported_by_model",
            param="model",
        )
    return NoReplicaError(
        f"No engine serves {name!r} at the moment.",
        code="no_replica",
        retry_after_seconds=_RETRY_AFTER_SECONDS,
    )


def unreachable(route: ServedRoute) -> NoReplicaError:
    """Return the error for a route none of whose engines answers."""
    return NoReplicaError(
        f"No engine of {route.asked.name!r} can be reached.",
        code="engine_unreachable",
        retry_after_seconds=_RETRY_AFTER_SECONDS,
    )


async def _send_anew(
    request: ActiveRequest, replica: ServedReplica, head: bytes, body: bytes
) -> EngineConnection:
    """Send on a new connection. It is the request's at once."""
    connection = request.connection = await replica.endpoint.connect()
    _check_client(request)
    if request.reservation is not None:
        request.reservation.is_sent = True
    await connection.send(head, body)
    return connection


def _check_client(request: ActiveRequest) -> None:
    if request.is_client_gone:
        raise ClientGoneError("The client left.")
    if request.is_settled:  # by the worker's end: what came now would be nobody's
        raise GatewayStoppedError("The gateway is shutting down.")
