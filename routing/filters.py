"""Which replicas may get a request, and why the others may not. Pure.

What is wrong with a replica has a rank. Some things are never passed over: it drains, cannot do
what is asked, or was tried. The others only say that any better one comes first: when nothing
better is left, a replica that is full, asleep or thought to be broken is tried all the same, since
what we think may be wrong and refusing everybody is the worst answer.

Whether a prompt fits is a guess too. Where it seems to fit nowhere, one of the largest contexts gets
it, and its engine says whether it was so.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

from routing.load_view import LoadView
from routing.types import ReplicaState, RequestShape

FULL_KV_USAGE = 0.97  # with a queue inside: who comes now pushes a running request out


class Obstacle(StrEnum):
    """Why a replica does not get a request, or only when no better one is left."""

    DRAINING = "draining"
    TRIED = "tried"  # in an earlier attempt of this request
    LACKS_FEATURE = "lacks_feature"
    LACKS_ADAPTER = "lacks_adapter"
    LACKS_MODEL = "lacks_model"  # by its own list; it may take a name that it does not list
    CONTEXT_TOO_SHORT = "context_too_short"
    FAILED = "failed"
    STARTING = "starting"
    BREAKER_OPEN = "breaker_open"  # or half-open, with a request trying it
    COOLING_DOWN = "cooling_down"  # it asked for that
    SLEEPING = "sleeping"  # a request would wake it
    FULL = "full"
    NO_WEIGHT = "no_weight"


# The lowest comes first; what is not here is never passed over.
LAST_RESORT_RANKS = {
    Obstacle.NO_WEIGHT: 1,
    Obstacle.FULL: 2,
    Obstacle.SLEEPING: 3,
    Obstacle.COOLING_DOWN: 4,
    Obstacle.BREAKER_OPEN: 5,
    Obstacle.STARTING: 5,
    Obstacle.FAILED: 5,
    Obstacle.LACKS_MODEL: 6,
}
_STATES = {
    ReplicaState.STARTING: Obstacle.STARTING,
    ReplicaState.SLEEPING: Obstacle.SLEEPING,
    ReplicaState.FAILED: Obstacle.FAILED,
    ReplicaState.LACKS_MODEL: Obstacle.LACKS_MODEL,
}


def find_obstacle(
    view: LoadView, shape: RequestShape, now: float, tried: Collection[str] = ()
) -> Obstacle | None:
    """Return the worst that stands against ``view``; None: nothing does."""
    state = view.state
    breaker = view.breaker
    if (  # nearly always so: nothing to find, and no calls
        state is ReplicaState.READY
        and not view.is_draining
        and breaker.open_until is None
        and now >= breaker.cooling_until
        and view.weight > 0.0
        and (view.max_in_flight is None or view.in_flight < view.max_in_flight)
        and not tried
        and not shape.needs
        and shape.adapter is None
        and (
            view.context_tokens is None
            or shape.input_tokens + (shape.asked_tokens or shape.output_tokens)
            <= view.context_tokens
        )
    ):
        return None
    if view.is_draining or state is ReplicaState.DRAINING:
        return Obstacle.DRAINING
    if tried and view.replica_id in tried:
        return Obstacle.TRIED
    obstacle = find_missing_capability(view, shape)
    if obstacle is None and state is not ReplicaState.READY:
        obstacle = _STATES.get(state)
    if obstacle is None:
        obstacle = _find_breaker_obstacle(view, now)
    if obstacle is not None:
        return obstacle
    if is_full(view):
        return Obstacle.FULL
    return Obstacle.NO_WEIGHT if view.weight <= 0.0 else None


def _find_breaker_obstacle(view: LoadView, now: float) -> Obstacle | None:
    breaker = view.breaker
    if now < breaker.cooling_until:
        return Obstacle.COOLING_DOWN
    if breaker.open_until is None or breaker.is_allowing(now):
        return None
    return Obstacle.BREAKER_OPEN


def are_all_broken(views: Sequence[LoadView], now: float) -> bool:
    """Tell whether none of ``views`` is thought to work: each has failed, or its breaker is open.

    A breaker that would let one request through to try it is a chance, and no broken replica. So is
    an engine that does not list the model: it may serve it, and if not says so at once.
    """
    return all(
        view.is_draining
        or view.state is ReplicaState.FAILED
        or (view.breaker.open_until is not None and not view.breaker.is_allowing(now))
        for view in views
    )


def is_full(view: LoadView) -> bool:
    """Tell whether it has as many requests of ours as it may, or its engine no room for another."""
    limit = view.max_in_flight
    if limit is not None and view.in_flight >= limit:
        return True
    return view.state is ReplicaState.SATURATED and (view.kv_usage or 0.0) >= FULL_KV_USAGE


def find_missing_capability(view: LoadView, shape: RequestShape) -> Obstacle | None:
    """Return what the replica cannot do of what is asked; what nobody told of, it can."""
    if shape.needs and view.features is not None and not shape.needs <= view.features:
        return Obstacle.LACKS_FEATURE
    adapter = shape.adapter
    if adapter is not None and view.adapters is not None and adapter not in view.adapters:
        return Obstacle.LACKS_ADAPTER
    needed = shape.input_tokens + (shape.asked_tokens or shape.output_tokens)
    if view.context_tokens is not None and needed > view.context_tokens:
        return Obstacle.CONTEXT_TOO_SHORT
    return None


def find_longest(
    passed_over: Sequence[tuple[LoadView, Obstacle]], shape: RequestShape
) -> list[LoadView]:
    """Return the replicas with the longest context of those that all seem too short.

    Empty where one that was tried is long enough: to the others the request would be too long.
    """
    short = [view for view, what in passed_over if what is Obstacle.CONTEXT_TOO_SHORT]
    if not short or any(
        what is Obstacle.TRIED and find_missing_capability(view, shape) is None
        for view, what in passed_over
    ):
        return []
    usable = [view for view in short if view.state not in _STATES] or short
    longest = max(view.context_tokens or 0 for view in usable)
    return [view for view in usable if view.context_tokens == longest]
