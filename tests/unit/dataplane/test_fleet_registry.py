"""What a FleetRegistry keeps from one Snapshot to the next, and what it lets go of."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from backends.http_pool import Endpoint
from backends.write_queue import WriteQueue
from gateway.dataplane.fleet import FleetRegistry
from gateway.snapshot.model import Capabilities, Deployment, Replica
from routing.prober import Prober
from routing.types import RequestShape

REPLICA = Replica("rep_1", "http://127.0.0.1:9")
ANYTHING = RequestShape(0, 0)


class WatchedEndpoint(Endpoint):
    """An endpoint that remembers that it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True
        super().close()


def make_registry(made: list[WatchedEndpoint] | None = None) -> FleetRegistry:
    """Return one whose prober has not started; every endpoint that it makes is put in ``made``."""
    loop = asyncio.get_running_loop()

    def endpoint(replica: Replica) -> Endpoint:
        one = WatchedEndpoint(
            replica.base_url,
            secret=None,
            connect_timeout_seconds=1.0,
            writes=WriteQueue(loop, before=lambda: None),
        )
        if made is not None:
            made.append(one)
        return one

    return FleetRegistry(endpoint, clock=loop.time, prober=Prober(), workers=1, index=0)


def deployment(replica: Replica = REPLICA, **told: Any) -> Deployment:
    return Deployment("dep_1", "small", "engine", (replica,), capabilities=Capabilities(**told))


async def test_what_an_admin_no_longer_says_does_not_hold() -> None:
    registry = make_registry()
    (view,) = registry.serve(deployment(context_tokens=100, adapters=("a",))).views
    assert (view.context_tokens, view.adapters) == (100, frozenset({"a"}))
    assert registry.serve(deployment()).views == (view,)
    assert (view.context_tokens, view.adapters) == (None, None)


async def test_a_decision_that_stands_is_used_only_while_nothing_stands_against_it() -> None:
    registry = make_registry()
    fleet = registry.serve(deployment())
    assert fleet.only is not None
    assert fleet.choose(ANYTHING, 0.0, ()) is fleet.only
    fleet.only.view.weight = 0.0
    other = fleet.choose(ANYTHING, 0.0, ())
    assert other is not None
    assert other is not fleet.only
    assert other.last_resort is not None
    assert fleet.choose(ANYTHING, 0.0, ("rep_1",)) is None


@pytest.mark.parametrize("is_started", [False, True])
async def test_a_replica_that_is_gone_keeps_no_connection(is_started: bool) -> None:
    made: list[WatchedEndpoint] = []
    registry = make_registry(made)
    prober = registry._prober
    assert prober is not None
    registry.serve(deployment())
    if is_started:
        prober.start()
        await asyncio.sleep(0)
    registry.keep_only([])
    await prober.close()
    requests, probes = made
    assert (requests.is_closed, probes.is_closed) == (True, True)
