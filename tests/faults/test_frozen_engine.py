"""An engine whose process is frozen: it takes connections, keeps those it has, and says nothing.

And one that is well by its own word, and hangs for all requests.

All timeouts are the defaults, minutes long. What helps is the prober's word.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec
import pytest

from gateway.snapshot.model import Deployment, Replica, Route
from tests.factories.snapshots import SECRET, make_snapshot
from tests.fixtures.data_plane import DataPlaneProcess, bearer, run_data_plane
from tests.fixtures.simulated_engine import (
    RunningEngine,
    run_simulated_engine,
    run_simulated_fleet,
)

pytestmark = pytest.mark.faults

LONG_TOKENS = 300  # of streams that run when it is frozen
SOON_SECONDS = 15.0  # an unanswered probe, of some four seconds, and room for a busy machine
HANG_SECONDS = 60.0  # ten until it is called stalled, and room as well


@dataclass
class Asked:
    """A request, and what has come of it."""

    model: str
    is_stream: bool
    tokens: int
    text: str = ""
    replica: str = ""
    request_id: str = ""

    async def run(self, client: httpx.AsyncClient) -> Asked:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": "Hi"}],
            "max_tokens": self.tokens,
            "stream": self.is_stream,
        }
        async with client.stream("POST", "/v1/chat/completions", json=body) as reply:
            self.replica = reply.headers.get("x-forebay-replica", "")
            self.request_id = reply.headers["x-request-id"]
            async for text in reply.aiter_text():
                self.text += text
            assert reply.status_code == 200, self.text
        assert not self.is_stream or self.text.endswith("data: [DONE]\n\n"), self.text[-300:]
        return self


@pytest.fixture(scope="module")
def frozen() -> Iterator[RunningEngine]:
    with run_simulated_engine("--model-name", "sim", "--step-ms", "10") as engine:
        yield engine


@pytest.fixture(scope="module")
def plane(
    frozen: RunningEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DataPlaneProcess]:
    state_dir = tmp_path_factory.mktemp("frozen") / "state"
    with (
        run_simulated_fleet(2, "--model-name", "sim", "--step-ms", "10") as fleet,
        run_data_plane(state_dir, frozen.url, probe_seconds=0.25) as running,
    ):
        sound = tuple(Replica(f"rep_{at}", one.url) for at, one in enumerate(fleet.engines))
        others = tuple(msgspec.structs.replace(one, id=f"{one.id}_other") for one in sound)
        base = make_snapshot(running.version + 1, frozen.url, dead_url=running.dead_url)
        fleets = {
            "fleet": (*sound, Replica("rep_frozen", frozen.url)),
            "hanging": (*others, Replica("rep_hanging", frozen.url)),
            "alone": (Replica("rep_alone", frozen.url),),
            "covered": (Replica("rep_covered", frozen.url),),
        }
        routes = {name: Route(f"route_{name}", name, f"dep_{name}") for name in fleets}
        routes["covered"] = msgspec.structs.replace(routes["covered"], fallbacks=("fleet",))
        deployments = {
            f"dep_{name}": Deployment(f"dep_{name}", name, "sim", replicas)
            for name, replicas in fleets.items()
        }
        running.publish(
            msgspec.structs.replace(
                base, routes=base.routes | routes, deployments=base.deployments | deployments
            )
        )
        running.wait_published()
        yield running


@contextmanager
def stopped(engine: RunningEngine) -> Iterator[None]:
    engine.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        engine.process.send_signal(signal.SIGCONT)


async def until(condition: Any, what: str) -> None:
    async with asyncio.timeout(SOON_SECONDS):
        while not condition():  # noqa: ASYNC110 - what a process says; there is no event
            await asyncio.sleep(0.02)
    assert condition(), what


async def test_what_a_frozen_engine_holds_goes_elsewhere_and_streams_are_left(
    plane: DataPlaneProcess, frozen: RunningEngine
) -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=plane.url, headers=bearer(SECRET), limits=limits, timeout=60, trust_env=False
    ) as client:

        def ask(model: str, *, is_stream: bool, tokens: int = 4) -> asyncio.Task[Asked]:
            asked.append(Asked(model, is_stream, tokens))
            return asyncio.create_task(asked[-1].run(client))

        asked: list[Asked] = []
        running = [ask("fleet", is_stream=True, tokens=LONG_TOKENS) for _ in range(9)]
        await until(lambda: all('"content":"' in one.text for one in asked), "all have begun")
        cut = [
            task for task, one in zip(running, asked, strict=True) if one.replica == "rep_frozen"
        ]
        assert cut
        with stopped(frozen):
            alone = ask("alone", is_stream=False)
            covered = ask("covered", is_stream=False)
            waiting = [ask("fleet", is_stream=bool(number % 2)) for number in range(12)]
            async with asyncio.timeout(SOON_SECONDS):
                served = await asyncio.gather(*waiting)
                assert (await covered).replica in {"rep_0", "rep_1"}
            assert "replica rep_frozen: failed" in plane.log
            closes = [plane.close_of(one.request_id) for one in served]
            assert max(close.attempts for close in closes) == 2  # some had met it first
            assert {close.replica_id for close in closes} == {"rep_0", "rep_1"}
            assert not any(task.done() for task in cut)
            assert not alone.done()  # nobody else could serve it
        for task in [*running, alone]:
            await task


async def test_what_hangs_in_an_engine_that_says_it_is_well_goes_elsewhere(
    plane: DataPlaneProcess, frozen: RunningEngine
) -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=plane.url, headers=bearer(SECRET), limits=limits, timeout=120, trust_env=False
    ) as client:
        sound = [Asked("hanging", is_stream=True, tokens=LONG_TOKENS) for _ in range(9)]
        await asyncio.gather(*(one.run(client) for one in sound))  # its metrics have shown work
        assert "rep_hanging" in {one.replica for one in sound}
        frozen.set_faults({"hang": True})
        try:
            async with asyncio.timeout(HANG_SECONDS):
                served = await asyncio.gather(
                    *(Asked("hanging", number % 2 == 0, 4).run(client) for number in range(12))
                )
        finally:
            frozen.set_faults(None)
        assert "replica rep_hanging says that it is well, and answers nothing" in plane.log
        closes = [plane.close_of(one.request_id) for one in served]
        assert max(close.attempts for close in closes) == 2  # some had met it first
        assert {close.replica_id for close in closes} == {"rep_0_other", "rep_1_other"}
