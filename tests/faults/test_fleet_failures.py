"""Eight simulated replicas under load, one of which goes wrong in every way there is.

No client may see an error that another attempt could have saved, and what is served in time is back
to what it was within five seconds.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
import pytest

from gateway.snapshot.model import BreakerPolicy, Deployment, Replica, Route
from tests.factories.snapshots import SECRET, make_snapshot
from tests.fixtures.data_plane import DataPlaneProcess, bearer, run_data_plane
from tests.fixtures.simulated_engine import RunningFleet, run_simulated_fleet

pytestmark = pytest.mark.faults

REPLICAS = 8
CLIENTS = 16
TOKENS = 12
BACK_SECONDS = 5.0

FAULTS: dict[str, dict[str, Any]] = {
    "kill": {"refuse": True, "cut_after_tokens": 0},
    "hang": {"hang": True},
    "slow": {"slow": 30.0},
    "500": {"status": 500},
    "drain": {"drain": True},
    "garbage": {"garbage": "http"},
    "truncate": {"cut_after_tokens": 0},
    "silence behind the role": {"stall_after_tokens": 0},
}


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningFleet]:
    with run_simulated_fleet(REPLICAS, "--model-name", "sim", "--step-ms", "10") as found:
        yield found


@pytest.fixture(scope="module")
def plane(
    fleet: RunningFleet, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DataPlaneProcess]:
    with run_data_plane(
        tmp_path_factory.mktemp("fleet") / "state",
        fleet.engines[0].url,
        probe_seconds=0.25,
        first_token_timeout_seconds=1.0,
        idle_timeout_seconds=2.0,
        reply_timeout_seconds=1.0,
        connect_timeout_seconds=0.5,
    ) as found:
        yield found


def publish(plane: DataPlaneProcess, fleet: RunningFleet, name: str) -> None:
    """Serve "fleet" by all replicas, of which nothing is known yet."""
    number = plane.version + 1
    base = make_snapshot(number, fleet.engines[0].url, dead_url=plane.dead_url)
    replicas = tuple(
        Replica(f"rep_{place}_{name}", engine.url) for place, engine in enumerate(fleet.engines)
    )
    deployment = Deployment(
        f"dep_{name}", name, "sim", replicas, breaker=BreakerPolicy(open_seconds=1.0)
    )
    route = Route("route_fleet", "fleet", deployment.id)
    plane.publish(
        msgspec.structs.replace(
            base,
            routes=base.routes | {"fleet": route},
            deployments=base.deployments | {deployment.id: deployment},
        )
    )
    plane.wait_published()


@dataclass
class Load:
    """Closed-loop clients, half of whose requests are streams, and how each one ended."""

    plane: DataPlaneProcess
    may_cut: bool  # streams that had begun to answer: nothing can save those of a killed engine
    ended: list[tuple[float, str, str]] = field(default_factory=list)  # at, request id, problem
    is_over: bool = False

    async def run(self) -> None:
        limits = httpx.Limits(max_connections=CLIENTS, max_keepalive_connections=CLIENTS)
        async with httpx.AsyncClient(timeout=20, limits=limits, trust_env=False) as client:
            await asyncio.gather(*(self._keep_asking(client, number) for number in range(CLIENTS)))

    async def _keep_asking(self, client: httpx.AsyncClient, number: int) -> None:
        turn = number
        while not self.is_over:
            turn += 1
            reply = await self._ask(client, is_stream=bool(turn % 2))
            problem = self._problem_of(reply)
            self.ended.append((time.monotonic(), reply.headers["x-request-id"], problem))

    async def _ask(self, client: httpx.AsyncClient, *, is_stream: bool) -> httpx.Response:
        return await client.post(
            self.plane.url + "/v1/chat/completions",
            json={
                "model": "fleet",
                "messages": [{"role": "user", "content": "Hi"}],
                "max_tokens": TOKENS,
                "stream": is_stream,
                "stream_options": {"include_usage": True} if is_stream else None,
            },
            headers=bearer(SECRET),
        )

    def _problem_of(self, reply: httpx.Response) -> str:
        if reply.status_code != 200:
            return f"{reply.status_code} {reply.text[:200]}"
        if not reply.headers["content-type"].startswith("text/event-stream"):
            made = reply.json()["usage"]["completion_tokens"]
            return "" if made == TOKENS else f"{made} tokens"
        if not reply.content.endswith(b"data: [DONE]\n\n"):
            is_begun = re.search(rb'"content":"[^"]', reply.content) is not None
            if self.may_cut and is_begun and b"engine_cut" in reply.content:
                return ""
            return f"a stream without its end: {reply.text[-300:]}"
        last = json.loads(reply.content.split(b"\n\n")[-3].removeprefix(b"data: "))
        return "" if last["usage"]["completion_tokens"] == TOKENS else str(last)

    def share_undisturbed(self, begin: float, end: float, bad_replica_id: str) -> float:
        """Return the share of the answers between two moments that never met the bad replica."""
        closes = [
            self.plane.close_of(request_id) for at, request_id, _ in self.ended if begin <= at < end
        ]
        good = [one for one in closes if one.attempts == 1 and one.replica_id != bad_replica_id]
        return len(good) / len(closes)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_one_replica_goes_wrong_and_no_client_notices(
    plane: DataPlaneProcess, fleet: RunningFleet, fault: dict[str, Any]
) -> None:
    for number in range(REPLICAS):
        fleet.set_faults(number, None)
    name = f"{plane.version}"
    publish(plane, fleet, name)
    load = Load(plane, may_cut="refuse" in fault)
    running = asyncio.create_task(load.run())
    await asyncio.sleep(1.0)
    await asyncio.to_thread(fleet.set_faults, 3, fault)
    await asyncio.sleep(BACK_SECONDS + 1.5)
    over_at = time.monotonic()
    load.is_over = True
    await running
    await asyncio.to_thread(fleet.set_faults, 3, None)
    assert [problem for _, _, problem in load.ended if problem] == []
    assert load.share_undisturbed(over_at - 1.5, over_at, f"rep_3_{name}") >= 0.85
