"""Two vLLM servers for the whole session, and one data plane for each module."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from gateway.snapshot.model import Deployment, PriceEntry, Replica, Route, SleepPolicy, Snapshot
from tests.engine import environment
from tests.engine.real_vllm import ENGINE_MODEL, START_SECONDS, RealVllm, run_real_vllm
from tests.factories.snapshots import default_keys
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.processes import wait_for

BOTH = "tiny"  # the public name of the deployment that has both
FIRST = "tiny-first"  # the second answers only where the first cannot
IMPATIENT = "tiny-impatient"  # as the first, which has some seconds for its first token
ONLY = {"a": "tiny-a", "b": "tiny-b"}  # one of them alone

_PATIENT = SleepPolicy(wake_limit_seconds=START_SECONDS)


@dataclass
class Pair:
    """The two servers, and the data plane before them."""

    a: RealVllm
    b: RealVllm
    plane: DataPlaneProcess
    _seen: list[tuple[int, float]] = field(default_factory=list)  # when both were last ready

    @property
    def engines(self) -> tuple[RealVllm, RealVllm]:
        return self.a, self.b

    def engine_of(self, reply: httpx.Response) -> RealVllm:
        """Return which of the two answered."""
        letter = reply.headers["x-forebay-replica"].removeprefix("rep_")[0]
        return self.a if letter == "a" else self.b

    def wait_until_ready(self) -> None:
        """Wait until both serve, and the data plane sends to each of them."""
        if self._seen == self._now():
            return
        for engine in self.engines:
            engine.want("wake")
        for engine in self.engines:
            engine.wait_for_state("ready")
            self._wait_until_chosen(ONLY[engine.name], f"rep_{engine.name}_only")
        self._wait_until_chosen(FIRST, "rep_a_first")
        self._seen = self._now()

    def _now(self) -> list[tuple[int, float]]:
        reports = [engine.report() for engine in self.engines]
        return [(report["pid"], report["since_at"]) for report in reports]

    def _wait_until_chosen(self, route: str, replica_id: str) -> None:
        def is_chosen() -> bool:
            reply = self.plane.chat(model=route, max_tokens=1)
            return reply.status_code == 200 and reply.headers["x-forebay-replica"] == replica_id

        wait_for(is_chosen, f"requests of {route} reach {replica_id}", 60)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave these tests out unless they are asked for: they take minutes, and 7 GB of memory."""
    if "engine" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("engine")]
    items[:] = [item for item in items if not item.get_closest_marker("engine")]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RealVllm, RealVllm]]:
    """Start both at once. One sleeps inside vLLM, the other by being stopped."""
    environment.prepare()
    with ExitStack() as stack:
        a, b = (
            stack.enter_context(run_real_vllm(name, tmp_path_factory.mktemp(name), sleep=sleep))
            for name, sleep in (("a", "level_1"), ("b", "stop"))
        )
        for engine in (a, b):
            engine.wait_for_state("ready")
        yield a, b


@pytest.fixture(scope="module")
def fleet(
    engines: tuple[RealVllm, RealVllm], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """Run a data plane before both servers."""
    plane = DataPlaneProcess(tmp_path_factory.mktemp("plane"), "", {"probe_seconds": 0.25})
    plane.client.timeout = httpx.Timeout(180)
    plane.publish(make_snapshot(*engines))
    try:
        plane.start()
        yield Pair(*engines, plane)
    finally:
        plane.stop()
        plane.let_go()


@pytest.fixture
def pair(fleet: Pair) -> Pair:
    """Return the two when both serve, whatever the test before did to them."""
    fleet.wait_until_ready()
    return fleet


def make_snapshot(a: RealVllm, b: RealVllm) -> Snapshot:
    """Return the catalog of both."""

    def deployment(name: str, *replicas: Replica, **policy: Any) -> Deployment:
        # A retry for each request: what is tested is that it comes, not how many may.
        policy = {"retry_share": 1.0, "sleep": _PATIENT, **policy}
        return Deployment(f"dep_{name}", name, ENGINE_MODEL, replicas, **policy)

    deployments = (
        deployment(BOTH, a.replica(), b.replica()),
        deployment(FIRST, a.replica("_first"), b.replica("_first", weight=0.0)),
        deployment(
            IMPATIENT,
            a.replica("_impatient"),
            b.replica("_impatient", weight=0.0),
            first_token_timeout_seconds=5.0,
        ),
        deployment(ONLY["a"], a.replica("_only")),
        deployment(ONLY["b"], b.replica("_only")),
    )
    return Snapshot(
        version=1,
        published_at_us=time.time_ns() // 1000,
        keys=default_keys(),
        routes={each.name: Route(f"route_{each.name}", each.name, each.id) for each in deployments},
        deployments={each.id: each for each in deployments},
        prices=tuple(
            PriceEntry(f"price_{each.name}", "pb_1", f"route_{each.name}", 0, "EUR", "2.5", "10")
            for each in deployments
        ),
    )
