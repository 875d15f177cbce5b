"""Two workers that tell each other nothing: each session has one replica all the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import msgspec
import pytest

from gateway.snapshot.model import Deployment, Replica, Route
from tests.factories.engine_replies import chat_reply, whole
from tests.factories.snapshots import SECRET, make_snapshot
from tests.fixtures.data_plane import DataPlaneProcess, bearer, run_data_plane
from tests.fixtures.scripted_engine import run_scripted_engine

SESSIONS = [f"session {number}" for number in range(8)]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataPlaneProcess]:
    state_dir = tmp_path_factory.mktemp("sessions") / "state"
    with (
        run_scripted_engine() as one,
        run_scripted_engine() as other,
        run_data_plane(state_dir, one.url, workers=2) as running,
    ):
        for engine in (one, other):
            engine.reply(whole(chat_reply(model="engine")))
        replicas = (Replica("rep_one", one.url), Replica("rep_other", other.url))
        base = make_snapshot(running.version + 1, one.url, dead_url=running.dead_url)
        running.publish(
            msgspec.structs.replace(
                base,
                routes=base.routes | {"pair": Route("route_pair", "pair", "dep_pair")},
                deployments=base.deployments
                | {"dep_pair": Deployment("dep_pair", "pair", "engine", replicas)},
            )
        )
        running.wait_published()
        yield running


def ask(plane: DataPlaneProcess, session: str, *, is_user: bool) -> tuple[str, str]:
    """Return the worker and the replica that served a request on a connection of its own."""
    body = {"model": "pair", "messages": [{"role": "user", "content": "Hi"}]}
    headers = bearer(SECRET)
    if is_user:
        body["user"] = session
    else:
        headers["x-forebay-session"] = session
    reply = httpx.post(f"{plane.url}/v1/chat/completions", json=body, headers=headers, timeout=20)
    assert reply.status_code == 200, reply.text
    return reply.headers["x-request-id"][16:28], reply.headers["x-forebay-replica"]


@pytest.mark.parametrize("is_user", [False, True])
def test_a_session_has_one_replica_whichever_worker_it_meets(
    plane: DataPlaneProcess, is_user: bool
) -> None:
    workers: defaultdict[str, set[str]] = defaultdict(set)
    replicas: defaultdict[str, set[str]] = defaultdict(set)
    for _ in range(30):  # which worker takes a connection is chance
        with ThreadPoolExecutor(4) as pool:
            served = pool.map(lambda name: ask(plane, name, is_user=is_user), SESSIONS)
            for session, (worker, replica) in zip(SESSIONS, served, strict=True):
                workers[session].add(worker)
                replicas[session].add(replica)
        if min(map(len, workers.values())) == 2:
            break
    assert {len(met) for met in workers.values()} == {2}
    assert {len(found) for found in replicas.values()} == {1}
    assert len(set.union(*replicas.values())) == 2
