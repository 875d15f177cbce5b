"""A deployment of many replicas behind one worker: all are known, all are used."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import msgspec
import pytest

from gateway.snapshot.model import Deployment, Replica, Route
from tests.factories.snapshots import SECRET, make_snapshot
from tests.fixtures.data_plane import DataPlaneProcess, bearer, run_data_plane
from tests.fixtures.processes import wait_for
from tests.fixtures.simulated_engine import RunningEngine, run_simulated_fleet

REPLICAS = 30  # more than are looked at for one request
REQUESTS = 400
CLIENTS = 20


def test_every_one_of_many_replicas_is_probed_and_used(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    options = ("--model-name", "sim", "--step-ms", "2")
    with (
        run_simulated_fleet(REPLICAS, *options) as fleet,
        run_data_plane(
            tmp_path_factory.mktemp("many") / "state", fleet.engines[0].url, probe_seconds=0.5
        ) as plane,
    ):
        fleet.set_faults(7, {"refuse": True})
        base = make_snapshot(2, fleet.engines[0].url, dead_url=plane.dead_url)
        replicas = tuple(Replica(f"rep_{at}", one.url) for at, one in enumerate(fleet.engines))
        deployment = Deployment("dep_many", "many", "sim", replicas, retry_share=0.0)
        plane.publish(
            msgspec.structs.replace(
                base,
                routes=base.routes | {"many": Route("route_many", "many", "dep_many")},
                deployments=base.deployments | {"dep_many": deployment},
            )
        )
        plane.wait_published()
        wait_for(lambda: "rep_7: starting" in plane.log, "the probes have been round", 15)
        statuses, used = asyncio.run(_ask_all(plane.url + "/v1/chat/completions", "many"))
        check_only_who_lists_it_is_asked(plane, fleet.engines[:6], fleet.engines[3])
    assert statuses == {200: REQUESTS}
    assert used.keys() == {f"rep_{at}" for at in range(REPLICAS)} - {"rep_7"}
    assert max(used.values()) < 4 * REQUESTS / REPLICAS


def check_only_who_lists_it_is_asked(
    plane: DataPlaneProcess, engines: list[RunningEngine], lists: RunningEngine
) -> None:
    """Six replicas of a deployment, five of which would answer 404: an adapter that one has."""
    model = "adapter"
    lists.client.post("/v1/load_lora_adapter", json={"lora_name": model}).raise_for_status()
    base = make_snapshot(3, engines[0].url, dead_url=plane.dead_url)
    replicas = tuple(Replica(f"{model}_{at}", one.url) for at, one in enumerate(engines))
    deployment = Deployment("dep_adapter", "a", model, replicas, retry_share=0.0)
    plane.publish(
        msgspec.structs.replace(
            base,
            routes=base.routes | {model: Route("route_adapter", model, "dep_adapter")},
            deployments=base.deployments | {"dep_adapter": deployment},
        )
    )
    plane.wait_published()
    mark = f"replica {model}_%d: lacks_model, was ready"
    others = [at for at, one in enumerate(engines) if one is not lists]
    wait_for(lambda: all(mark % at in plane.log for at in others), "their lists were read", 15)
    statuses, used = asyncio.run(_ask_all(plane.url + "/v1/chat/completions", model))
    assert statuses == {200: REQUESTS}
    assert used == {f"{model}_{engines.index(lists)}": REQUESTS}


async def _ask_all(url: str, model: str) -> tuple[Counter[int], Counter[str]]:
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    statuses: Counter[int] = Counter()
    used: Counter[str] = Counter()

    async def keep_asking(client: httpx.AsyncClient) -> None:
        for _ in range(REQUESTS // CLIENTS):
            reply = await client.post(url, json=body, headers=bearer(SECRET))
            statuses[reply.status_code] += 1
            used[reply.headers.get("x-forebay-replica", "none")] += 1

    async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
        await asyncio.gather(*(keep_asking(client) for _ in range(CLIENTS)))
    return statuses, used
