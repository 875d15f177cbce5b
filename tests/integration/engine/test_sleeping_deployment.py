"""A deployment that sleeps, asked through the whole data plane: held, woken, answered."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest

from billing.usage.event import RequestStatus
from gateway.snapshot.model import Deployment, Replica, Route, SleepPolicy
from tests.factories.snapshots import SECRET, make_snapshot
from tests.fixtures.data_plane import DataPlaneProcess, bearer, run_data_plane
from tests.fixtures.processes import wait_for
from tests.fixtures.streamed import Streamed
from tests.fixtures.supervised_engine import TOKEN, SupervisedEngine, run_supervised_engine


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SupervisedEngine]:
    with run_supervised_engine(tmp_path_factory.mktemp("engine")) as running:
        yield running


@pytest.fixture(scope="module")
def plane(
    engine: SupervisedEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DataPlaneProcess]:
    with run_data_plane(
        tmp_path_factory.mktemp("plane") / "state",
        engine.url,
        probe_seconds=0.2,
        queue_keepalive_seconds=0.1,
    ) as running:
        yield running


def publish(plane: DataPlaneProcess, engine: SupervisedEngine, **sleep: Any) -> None:
    number = plane.version + 1
    base = make_snapshot(number, engine.url, dead_url=plane.dead_url)
    replica = Replica(f"rep_{number}", engine.url, TOKEN, agent_url=engine.agent_url)
    deployment = Deployment(
        f"dep_{number}", "sleeper", "small", (replica,), sleep=SleepPolicy(**sleep)
    )
    plane.publish(
        msgspec.structs.replace(
            base,
            routes=base.routes | {"sleeper": Route("route_sleeper", "sleeper", deployment.id)},
            deployments=base.deployments | {deployment.id: deployment},
        )
    )
    plane.wait_published()


def put_to_sleep(plane: DataPlaneProcess, engine: SupervisedEngine) -> None:
    wake(engine)

    def is_told() -> bool:
        engine.ask("POST", "/sleep")  # again: an earlier test's wake may have been on its way
        return engine.report()["state"] == "sleeping" and slept(plane)

    wait_for(is_told, "the data plane knows", 60)


def wake(engine: SupervisedEngine) -> None:
    engine.ask("POST", "/keep-warm?seconds=3600")  # an earlier test's deployment said less
    engine.ask("POST", "/wake")
    engine.wait_for_state("ready")


def slept(plane: DataPlaneProcess) -> bool:
    """Whether the data plane knows that its engine sleeps: the latest it said of this replica."""
    replica = f"replica rep_{plane.version}: "
    said = [line for line in plane.log.splitlines() if replica in line and ", was " in line]
    return bool(said) and "sleeping, was" in said[-1]


def ask(plane: DataPlaneProcess) -> httpx.Response:
    return plane.chat(model="sleeper", max_tokens=4)


def test_requests_wait_for_one_wake_and_are_answered(
    plane: DataPlaneProcess, engine: SupervisedEngine
) -> None:
    publish(plane, engine)
    put_to_sleep(plane, engine)
    starts = len(engine.starts)
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: ask(plane), range(8)))
    assert {reply.status_code for reply in replies} == {200}
    assert len(engine.starts) == starts + 1
    assert ask(plane).status_code == 200


def test_a_stream_is_kept_alive_meanwhile(
    plane: DataPlaneProcess, engine: SupervisedEngine
) -> None:
    publish(plane, engine)
    put_to_sleep(plane, engine)
    got = Streamed(plane, model="sleeper", max_tokens=4)
    assert got.raw.startswith(b": waiting")
    assert got.is_done
    assert got.close.usage.output_tokens == 4


@pytest.mark.parametrize("is_new", [False, True])
def test_who_comes_before_a_probe_has_told_is_answered_as_well(
    plane: DataPlaneProcess, engine: SupervisedEngine, is_new: bool
) -> None:
    publish(plane, engine)
    for _ in range(3):
        wake(engine)
        assert ask(plane).status_code == 200
        engine.ask("POST", "/sleep")
        engine.wait_for_state("sleeping", "draining")
        if is_new:
            publish(plane, engine)  # a replica of another name: nothing is known of it
        assert ask(plane).status_code == 200


def test_after_the_limit_503_says_when_to_come_back(
    plane: DataPlaneProcess, engine: SupervisedEngine
) -> None:
    publish(plane, engine, wake_limit_seconds=0.1)
    put_to_sleep(plane, engine)
    reply = ask(plane)
    assert reply.status_code == 503
    assert reply.json()["error"]["code"] == "engine_waking"
    assert int(reply.headers["retry-after-ms"]) > 0
    engine.wait_for_state("ready")  # the wake went on


def test_an_engine_nobody_asks_goes_to_sleep_when_the_deployment_says(
    plane: DataPlaneProcess, engine: SupervisedEngine
) -> None:
    wake(engine)
    publish(plane, engine, keep_warm_seconds=1.0)
    wait_for(lambda: engine.report()["keep_warm_seconds"] == 1.0, "the agent is told")
    engine.wait_for_state("sleeping")
    wait_for(lambda: slept(plane), "the data plane knows")
    assert ask(plane).status_code == 200


def test_a_client_that_leaves_meanwhile_is_settled_at_once(
    plane: DataPlaneProcess, engine: SupervisedEngine
) -> None:
    publish(plane, engine)
    put_to_sleep(plane, engine)
    opened = plane.opened
    with httpx.Client(trust_env=False, timeout=0.2) as client, pytest.raises(httpx.ReadTimeout):
        client.post(
            plane.url + "/v1/chat/completions",
            json={"model": "sleeper", "messages": [{"role": "user", "content": "Hi"}]},
            headers=bearer(SECRET),
        )
    close = plane.last_close(opened)
    assert (close.status, close.http_status) == (RequestStatus.CLIENT_CLOSED, 499)
    engine.wait_for_state("ready")  # the wake went on
