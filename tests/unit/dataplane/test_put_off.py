"""When a route whose engines seem broken is asked after its fallbacks, and when all the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from gateway.dataplane.active_request import ActiveRequest
from gateway.dataplane.try_routes import _is_better_elsewhere
from gateway.snapshot.model import BreakerPolicy
from routing.fleet_memory import TRIAL_SECONDS, FleetMemory
from routing.load_view import LoadView
from routing.types import ReplicaState


def view_of(state: ReplicaState, *, is_open: bool = False) -> LoadView:
    view = LoadView("rep", BreakerPolicy(failures=1, open_seconds=2.0))
    view.state = state
    if is_open:
        view.breaker.fail(view.breaker.begin(100.0), 100.0)
    return view


class Route:
    """A route with one replica, and a fallback whose replica works or does not."""

    def __init__(self, own: LoadView, other: ReplicaState = ReplicaState.READY) -> None:
        self.fleet = SimpleNamespace(views=[own], memory=FleetMemory())
        self.other = SimpleNamespace(fleet=SimpleNamespace(views=[view_of(other)]))

    def is_put_off(self, now: float) -> bool:
        request = SimpleNamespace(
            clock=lambda: now, route=SimpleNamespace(fleet=self.fleet), others=(self.other,)
        )
        return _is_better_elsewhere(cast("ActiveRequest", request))


@pytest.mark.parametrize("is_open", [False, True])
def test_what_probes_call_failed_is_asked_now_and_then(is_open: bool) -> None:
    """Also where its breaker has opened: nothing else would ever close that one again."""
    route = Route(view_of(ReplicaState.FAILED, is_open=is_open))
    asked = [at for at in range(200, 231) if not route.is_put_off(float(at))]
    assert asked == [200, 210, 220, 230]
    assert TRIAL_SECONDS == 10


def test_an_open_breaker_is_left_to_itself() -> None:
    route = Route(view_of(ReplicaState.READY, is_open=True))
    assert route.is_put_off(101.0)
    assert not route.is_put_off(103.0)  # one request may try it


def test_nobody_is_put_off_for_a_fallback_that_is_no_better() -> None:
    assert not Route(view_of(ReplicaState.READY)).is_put_off(101.0)
    down = Route(view_of(ReplicaState.READY, is_open=True), ReplicaState.FAILED)
    assert not down.is_put_off(101.0)
