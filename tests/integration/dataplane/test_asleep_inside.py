"""An engine that sleeps inside its process takes requests and holds them: nobody may wait there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from billing.usage.event import RequestStatus
from gateway.snapshot.model import Deployment, Replica, Route, SleepPolicy
from tests.factories.snapshots import make_snapshot
from tests.fixtures.data_plane import DataPlaneProcess, run_data_plane
from tests.fixtures.processes import wait_for
from tests.fixtures.simulated_engine import RunningEngine, run_simulated_engine
from tests.fixtures.streamed import Streamed


@pytest.fixture(scope="module")
def engine() -> Iterator[RunningEngine]:
    with run_simulated_engine() as running:
        yield running


@pytest.fixture(scope="module")
def plane(
    engine: RunningEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DataPlaneProcess]:
    state = tmp_path_factory.mktemp("plane") / "state"
    with run_data_plane(state, engine.url, probe_seconds=0.3) as running:
        yield running


def publish(plane: DataPlaneProcess, engine: RunningEngine, **sleep: Any) -> None:
    number = plane.version + 1
    base = make_snapshot(number, engine.url, dead_url=plane.dead_url)
    replica = Replica(f"rep_{number}", engine.url)
    deployment = Deployment(
        f"dep_{number}", "sleeper", "simulated", (replica,), sleep=SleepPolicy(**sleep)
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
