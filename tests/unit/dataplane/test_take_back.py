"""Which requests a frozen engine is relieved of."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from backends.errors import BackendTimeoutError
from gateway.dataplane.active_request import ActiveRequest
from gateway.dataplane.take_back import is_in_doubt, take_back
from gateway.snapshot.model import BreakerPolicy
from routing.load_view import LoadView
from routing.retry_budget import RetryBudget
from routing.types import ReplicaState


@dataclass
class Held:
    """A fleet whose first replica holds requests and says nothing, and routes to fall back to."""

    others: tuple[ReplicaState, ...] = (ReplicaState.READY,)
    retry_share: float = 1.0
    is_silent: bool = True
    fallbacks: tuple[Any, ...] = ()
    aborted: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        states = (ReplicaState.FAILED, *self.others)
        self.views = [LoadView(f"rep_{at}", BreakerPolicy()) for at in range(len(states))]
        for view, state in zip(self.views, states, strict=True):
            view.state = state
        watch = SimpleNamespace(is_asleep_inside=False, is_silent=self.is_silent)
        self.given_up: list[None] = []
        self.replica = SimpleNamespace(
            id="rep_0",
            view=self.views[0],
            watch=watch,
            endpoint=SimpleNamespace(give_up_connecting=lambda: self.given_up.append(None)),
        )
        budget = RetryBudget(self.retry_share, 0.0)
        self.fleet = SimpleNamespace(views=self.views, retry_budget=budget)
        self.route = SimpleNamespace(fleet=self.fleet)

    def request(self, **fields: Any) -> ActiveRequest:
        return cast(
            "ActiveRequest",
            SimpleNamespace(
                connection=SimpleNamespace(abort=self.aborted.append),
                replica=self.replica,
                route=self.route,
                others=self.fallbacks,
                shape=None,
                identity=SimpleNamespace(fallback=None),
                first_token_at_us=None,
                attempts=1,
                **fields,
            ),
        )

    def taken(self, count: int = 1) -> int:
        requests = [self.request() for _ in range(count)]
        assert all(is_in_doubt(request) for request in requests)
        take_back(requests, 1.0)
        assert all(isinstance(error, BackendTimeoutError) for error in self.aborted)
        return len(self.aborted)


def test_as_many_as_the_retry_budget_has_room_for() -> None:
    assert Held().taken(7) == 7
    assert Held().taken(25) == 10
    assert Held(retry_share=0.0).taken(7) == 0  # they wait on, rather than fail


def test_only_where_another_may_take_them() -> None:
    assert Held(others=()).taken() == 0
    assert Held(others=(ReplicaState.FAILED, ReplicaState.SLEEPING)).taken() == 0
    assert Held(others=(ReplicaState.FAILED, ReplicaState.SATURATED)).taken() == 1
    assert Held(is_silent=False).taken() == 0


def test_a_fallback_takes_those_of_a_fleet_that_is_down() -> None:
    sound = (SimpleNamespace(fleet=Held(others=()).fleet),)
    sound[0].fleet.views[0].state = ReplicaState.READY
    down = (SimpleNamespace(fleet=Held(others=()).fleet),)
    assert Held(others=(), fallbacks=sound).taken(20) == 20
    assert Held(others=(), fallbacks=down).taken() == 0
    assert Held(others=(ReplicaState.STARTING,), fallbacks=sound).taken() == 0  # it may come


def test_streams_that_have_begun_and_last_attempts_are_left() -> None:
    held = Held(others=(ReplicaState.READY,) * 4)
    for fields in ({"first_token_at_us": 5}, {"attempts": 3}):
        request = held.request()
        for name, value in fields.items():
            setattr(request, name, value)
        take_back([request], 1.0)
    assert not held.aborted


def test_who_still_connects_goes_on_for_free_where_another_is_there() -> None:
    def give_up(held: Held) -> int:
        request = held.request()
        request.connection = None
        take_back([request], 1.0)
        assert not held.aborted
        return len(held.given_up)

    assert give_up(Held(retry_share=0.0)) == 1
    assert give_up(Held(others=())) == 0
    assert give_up(Held(is_silent=False)) == 0
