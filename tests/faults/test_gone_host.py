"""A host that is gone without a word: what runs there stays silent, and nobody can connect.

It is made of a process that is stopped, and of a queue for connections that is full, so that the
kernel drops what comes. Nothing of it waits for a timeout: all are minutes long.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

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

SOON_SECONDS = 20.0  # an unanswered probe, of some four seconds, and room for a busy machine
REQUESTS = 24


@contextlib.contextmanager
def gone(engine: RunningEngine) -> Iterator[None]:
    engine.process.send_signal(signal.SIGSTOP)
    held: list[socket.socket] = []
    try:
        while True:
            one = socket.socket()
            one.settimeout(0.3)
            held.append(one)
            try:
                one.connect(("127.0.0.1", engine.port))
            except TimeoutError:
                break
        yield
    finally:
        for one in held:
            one.close()
        engine.process.send_signal(signal.SIGCONT)


async def ask(client: httpx.AsyncClient) -> str:
    body = {"model": "fleet", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 30}
    reply = await client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    return reply.headers["x-forebay-replica"]


async def test_nobody_waits_for_a_connection_to_a_host_that_is_gone(tmp_path: Path) -> None:
    options = ("--model-name", "sim", "--step-ms", "10")
    with (
        run_simulated_fleet(2, *options) as fleet,
        run_simulated_engine(*options) as lost,
        run_data_plane(
            tmp_path / "state", lost.url, probe_seconds=0.25, connect_timeout_seconds=120.0
        ) as plane,
    ):
        replicas = tuple(Replica(f"rep_{at}", one.url) for at, one in enumerate(fleet.engines))
        _serve(plane, (*replicas, Replica("rep_lost", lost.url)), lost)
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=plane.url, headers=bearer(SECRET), limits=limits, timeout=60, trust_env=False
        ) as client:
            assert "rep_lost" in {await ask(client) for _ in range(REQUESTS)}
            with gone(lost):
                async with asyncio.timeout(SOON_SECONDS):
                    served = await asyncio.gather(*(ask(client) for _ in range(REQUESTS)))
        assert set(served) <= {"rep_0", "rep_1"}
        assert max(close.attempts for close in plane.closes) == 2  # some had met it first


def _serve(plane: DataPlaneProcess, replicas: tuple[Replica, ...], lost: RunningEngine) -> None:
    base = make_snapshot(plane.version + 1, lost.url, dead_url=plane.dead_url)
    routes = base.routes | {"fleet": Route("route_fleet", "fleet", "dep_fleet")}
    deployments = {"dep_fleet": Deployment("dep_fleet", "fleet", "sim", replicas)}
    plane.publish(
        msgspec.structs.replace(base, routes=routes, deployments=base.deployments | deployments)
    )
    plane.wait_published()
