"""Requests that an engine holds and will not answer, taken back so that another can.

Only what has given its client nothing yet, and only where somebody else may take it: an engine that is
merely slow to say how it is would otherwise lose requests that nobody else serves. A stream that has
begun is left to its own timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.errors import BackendTimeoutError, EngineAsleepError
from gateway.dataplane.failures import MAX_ATTEMPTS
from routing.filters import are_all_broken, find_missing_capability
from routing.types import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.dataplane.active_request import ActiveRequest
    from routing.retry_budget import RetryBudget

_SERVING = (ReplicaState.READY, ReplicaState.SATURATED)


def take_back(requests: Iterable[ActiveRequest], now: float) -> None:
    """End the attempts of those ``requests`` that wait for nothing; :mod:`.try_routes` goes on."""
    left: dict[RetryBudget, int] = {}  # retries that each deployment has room for in this pass
    for request in requests:
        connection, replica = request.connection, request.replica
        if replica is None or replica.watch is None or request.first_token_at_us is not None:
            continue
        if connection is None:
            # One that is gone takes no connection either. Nothing was sent: to go on is free.
            if replica.watch.is_silent and _is_another_there(request, now):
                replica.endpoint.give_up_connecting()
            continue
        if replica.watch.is_asleep_inside:
            # It takes requests and holds them until somebody wakes it, which nobody would.
            connection.abort(EngineAsleepError("The engine sleeps."))
        elif replica.watch.is_silent and _may_go_elsewhere(request, left, now):
            connection.abort(BackendTimeoutError("The engine answers nothing any more."))


def is_in_doubt(request: ActiveRequest) -> bool:
    """Tell whether it has come to an engine that does not just serve: cheap, and nearly never so."""
    replica = request.replica
    return replica is not None and replica.view.state is not ReplicaState.READY


def _may_go_elsewhere(request: ActiveRequest, left: dict[RetryBudget, int], now: float) -> bool:
    """Tell whether another replica, or a fallback of its route, is there and may be asked."""
    if request.attempts >= MAX_ATTEMPTS:
        return False
    if _is_another_replica_there(request):
        budget = request.route.fleet.retry_budget
        tokens = left.setdefault(budget, budget.count_whole(now))
        left[budget] = tokens - 1
        return tokens > 0
    return _is_fallback_there(request, now)


def _is_another_there(request: ActiveRequest, now: float) -> bool:
    return _is_another_replica_there(request) or _is_fallback_there(request, now)


def _is_another_replica_there(request: ActiveRequest) -> bool:
    replica, shape = request.replica, request.shape
    others = sum(
        view.replica_id != (None if replica is None else replica.id)
        and view.state in _SERVING
        and not view.is_draining
        and (shape is None or find_missing_capability(view, shape) is None)
        for view in request.route.fleet.views
    )
    return others >= request.attempts  # each attempt before this one has met another


def _is_fallback_there(request: ActiveRequest, now: float) -> bool:
    return are_all_broken(request.route.fleet.views, now) and any(
        not are_all_broken(route.fleet.views, now)
        for route in (request.others if request.identity.fallback is None else ())
    )
