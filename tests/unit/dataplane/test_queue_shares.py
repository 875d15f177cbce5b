"""What each worker has of a bound and of a queue, as the serving table resolves it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from backends.http_pool import Endpoint
from backends.write_queue import WriteQueue
from gateway.dataplane.fleet import FleetRegistry
from gateway.dataplane.serving_table import QueueRegistry, ServingTable, build_serving_table
from gateway.snapshot.model import QueuePolicy, Replica, Snapshot
from routing.types import RequestShape
from tests.factories.snapshots import make_snapshot

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def snapshot_of(*, max_in_flight: int, size: int) -> Snapshot:
    base = make_snapshot(1, NOWHERE, dead_url=NOWHERE)
    replace = msgspec.structs.replace
    own = (Replica("rep_own", NOWHERE),)
    deployment = replace(base.deployments["dep_small"], max_in_flight=max_in_flight, replicas=own)
    route = replace(base.routes["small"], queue=QueuePolicy(size=size))
    return replace(
        base,
        deployments={**base.deployments, "dep_small": deployment},
        routes={**base.routes, "small": route},
    )


class Worker:
    """The part of one worker that shares with others."""

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: int, index: int) -> None:
        def endpoint(replica: Replica) -> Endpoint:
            writes = WriteQueue(loop, before=lambda: None)
            return Endpoint(
                replica.base_url, secret=None, connect_timeout_seconds=1.0, writes=writes
            )

        self._fleets = FleetRegistry(
            endpoint, clock=lambda: 0.0, prober=None, workers=workers, index=index
        )
        self.queues = QueueRegistry(loop, workers=workers, index=index)

    def serve(self, snapshot: Snapshot) -> ServingTable:
        return build_serving_table(
            snapshot, self._fleets, self.queues, find_predictor=lambda _: None
        )

    def shares(self, snapshot: Snapshot) -> tuple[int | None, int]:
        """Return how many run and how many wait here."""
        route = self.serve(snapshot).routes["small"]
        assert route.queue is not None
        return route.queue.capacity, route.places


def test_bounds_and_queues_are_shared_among_workers(loop: asyncio.AbstractEventLoop) -> None:
    workers = [Worker(loop, 3, index) for index in range(3)]

    def all_shares(max_in_flight: int, size: int) -> list[tuple[int | None, int]]:
        snapshot = snapshot_of(max_in_flight=max_in_flight, size=size)
        return [worker.shares(snapshot) for worker in workers]

    assert all_shares(6, 100) == [(2, 34), (2, 33), (2, 33)]
    assert all_shares(4, 5) == [(2, 2), (1, 2), (1, 1)]
    assert all_shares(1, 2) == [(1, 1), (1, 1), (1, 1)]  # at least one each
    assert all_shares(1, 0) == [(1, 0), (1, 0), (1, 0)]


def test_shares_follow_the_number_of_workers(loop: asyncio.AbstractEventLoop) -> None:
    worker = Worker(loop, 1, 0)
    snapshot = snapshot_of(max_in_flight=6, size=10)
    assert worker.shares(snapshot) == (6, 10)
    worker.queues.set_share(4, 3)
    assert worker.shares(snapshot) == (1, 2)
    worker.queues.set_share(2, 1)
    assert worker.shares(snapshot) == (3, 5)


def test_a_bound_of_none_is_no_queue_and_no_replica(loop: asyncio.AbstractEventLoop) -> None:
    worker = Worker(loop, 3, 2)
    for bound, is_served in ((1, True), (0, False), (1, True)):
        route = worker.serve(snapshot_of(max_in_flight=bound, size=5)).routes["small"]
        assert (route.queue is not None) is is_served
        decision = route.fleet.choose(RequestShape(10, 10), 0.0, ())
        assert (decision is not None) is is_served


def test_the_table_has_the_weights_of_its_snapshot(loop: asyncio.AbstractEventLoop) -> None:
    snapshot = snapshot_of(max_in_flight=1, size=1)
    assert Worker(loop, 1, 0).serve(snapshot).organization_weights == {}
    weighed = msgspec.structs.replace(snapshot, organization_weights={"org_1": 2.5})
    assert Worker(loop, 1, 0).serve(weighed).organization_weights == {"org_1": 2.5}
