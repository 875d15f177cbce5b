"""An engine that sleeps inside its process takes requests and holds them: nobody may wait there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest

from billing.usage.event import RequestStatus
from gateway.snapshot.model import Deployment, Replica, Route, SleepPolicy
from tests.factories.snapshots import make_snapshot
from tests.fixtures.data_plane import DataPlaneProcess, run_data_plane
from tests.fixtures.processes import wait_for
from tests.fixtures.simulated_engine import RunningEngine, RunningFleet, run_simulated_fleet
from tests.fixtures.streamed import Streamed


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningFleet]:
    with run_simulated_fleet(2) as running:
        yield running


@pytest.fixture(scope="module")
def engine(fleet: RunningFleet) -> RunningEngine:
    return fleet.engines[0]


@pytest.fixture(scope="module")
def plane(
    engine: RunningEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DataPlaneProcess]:
    state = tmp_path_factory.mktemp("plane") / "state"
    with run_data_plane(state, engine.url, probe_seconds=0.3) as running:
        yield running


def publish(
    plane: DataPlaneProcess,
    engine: RunningEngine,
    *more: Replica,
    max_in_flight: int | None = None,
    **sleep: Any,
) -> None:
    number = plane.version + 1
    base = make_snapshot(number, engine.url, dead_url=plane.dead_url)
    deployment = Deployment(
        f"dep_{number}",
        "sleeper",
        "simulated",
        (*more, Replica(f"rep_{number}", engine.url)),
        max_in_flight=max_in_flight,
        sleep=SleepPolicy(**sleep),
    )
    plane.publish(
        msgspec.structs.replace(
            base,
            routes=base.routes | {"sleeper": Route("route_sleeper", "sleeper", deployment.id)},
            deployments=base.deployments | {deployment.id: deployment},
        )
    )
    plane.wait_published()


def put_to_sleep(engine: RunningEngine) -> None:
    httpx.post(f"{engine.url}/sleep?level=1").raise_for_status()


def is_asleep(engine: RunningEngine) -> bool:
    told: bool = engine.client.get("/is_sleeping").json()["is_sleeping"]
    return told


@pytest.mark.parametrize("is_stream", [False, True])
def test_who_came_just_before_it_was_seen_wakes_it(
    plane: DataPlaneProcess, engine: RunningEngine, is_stream: bool
) -> None:
    publish(plane, engine, keep_warm_seconds=3600.0)
    for _ in range(3):
        assert plane.chat(model="sleeper", max_tokens=2).status_code == 200
        put_to_sleep(engine)
        if is_stream:
            got = Streamed(plane, model="sleeper", max_tokens=2)
            assert got.is_done
            close = got.close
        else:
            reply = plane.chat(model="sleeper", max_tokens=2)
            assert reply.status_code == 200
            close = plane.close_of(reply)
        assert (close.status, close.usage.output_tokens) == (RequestStatus.COMPLETED, 2)


def test_it_is_woken_where_no_other_replica_works(
    plane: DataPlaneProcess, engine: RunningEngine
) -> None:
    publish(plane, engine, Replica("rep_dead", plane.dead_url), keep_warm_seconds=3600.0)
    for is_known in (False, True):
        assert plane.chat(model="sleeper", max_tokens=2).status_code == 200
        put_to_sleep(engine)
        if is_known:
            known = f"replica rep_{plane.version}: sleeping"
            wait_for(lambda known=known: known in plane.log, "the data plane knows")  # type: ignore[misc]
        reply = plane.chat(model="sleeper", max_tokens=2)
        assert reply.status_code == 200, reply.text
        assert reply.headers["x-forebay-replica"] == f"rep_{plane.version}"


def test_one_more_is_woken_where_those_that_work_have_no_room(
    plane: DataPlaneProcess, fleet: RunningFleet
) -> None:
    awake, asleep = fleet.engines
    awake.client.post("/wake_up").raise_for_status()
    put_to_sleep(asleep)
    more = Replica("rep_awake", awake.url)
    publish(plane, asleep, more, max_in_flight=1, keep_warm_seconds=3600.0)
    name = f"replica rep_{plane.version}:"
    wait_for(lambda: f"{name} sleeping" in plane.log, "the data plane knows")
    assert plane.chat(model="sleeper", max_tokens=2).status_code == 200
    assert is_asleep(asleep)  # one has room
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(plane.chat, model="sleeper", max_tokens=150) for _ in range(2)]
        assert {one.result().status_code for one in running} == {200}
    wait_for(lambda: not is_asleep(asleep), "it is woken")
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(plane.chat, model="sleeper", max_tokens=50) for _ in range(2)]
        served = {one.result().headers["x-forebay-replica"] for one in running}
    assert served == {"rep_awake", f"rep_{plane.version}"}


def test_where_nobody_may_wake_it_that_is_said_at_once(
    plane: DataPlaneProcess, engine: RunningEngine
) -> None:
    publish(plane, engine)
    assert plane.chat(model="sleeper", max_tokens=2).status_code == 200
    put_to_sleep(engine)
    began_at = time.monotonic()
    reply = plane.chat(model="sleeper", max_tokens=2)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "engine_asleep")
    assert "retry-after" in reply.headers
    assert time.monotonic() - began_at < 10
    httpx.post(f"{engine.url}/wake_up").raise_for_status()
    wait_for(lambda: plane.chat(model="sleeper", max_tokens=2).is_success, "it serves again", 10)
