"""Replicas that come and go while requests wait for a place: who waited meets those that are there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import msgspec
import pytest

from gateway.snapshot.model import Replica
from tests.factories.engine_replies import chat_reply, whole
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.processes import wait_for
from tests.fixtures.scripted_engine import Gate, Reset, ScriptedEngine, run_scripted_engine
from tests.integration.dataplane.test_queue import bounded, narrow
from tests.integration.dataplane.test_rate_limits import served

__all__ = ["narrow"]
_WAITING = 5


@pytest.fixture
def other() -> Iterator[ScriptedEngine]:
    """Return another engine for the same model."""
    with run_scripted_engine() as engine:
        engine.reply(whole(chat_reply()))
        yield engine


def publish(plane: DataPlaneProcess, replicas: dict[str, str], draining: str = "") -> None:
    """Have ``small`` served by these, by id and address, each with one request at a time."""
    snapshot = bounded(plane, 1, deadline_seconds=30.0)
    deployment = snapshot.deployments["dep_small"]
    own: Replica = deployment.replicas[0]
    several = tuple(
        msgspec.structs.replace(own, id=each, base_url=url, is_draining=each == draining)
        for each, url in replicas.items()
    )
    deployment = msgspec.structs.replace(deployment, replicas=several)
    deployments = {**snapshot.deployments, "dep_small": deployment}
    plane.publish(msgspec.structs.replace(snapshot, deployments=deployments))
    served(plane)


def ask(plane: DataPlaneProcess) -> httpx.Response:
    with httpx.Client(trust_env=False, timeout=15) as client:
        return client.post(
            f"{plane.url}/v1/chat/completions",
            json={"model": "small", "messages": [{"role": "user", "content": "Hi"}]},
            headers={"authorization": "Bearer fb-test-good"},
        )


def begin(plane: DataPlaneProcess, pool: ThreadPoolExecutor) -> list[Future[httpx.Response]]:
    """Ask so often that one runs and the others wait."""
    asked = [pool.submit(ask, plane) for _ in range(_WAITING + 1)]
    wait_for(lambda: plane.open_requests == _WAITING + 1, "all are admitted", 10)
    return asked


@pytest.mark.parametrize("is_draining", [True, False])
def test_who_waited_goes_to_the_replica_that_took_the_place_of_another(
    narrow: DataPlaneProcess, engine: ScriptedEngine, other: ScriptedEngine, is_draining: bool
) -> None:
    publish(narrow, {"rep_old": engine.url})
    gate = threading.Event()
    engine.reply_once(Gate(gate), whole(chat_reply()))
    engine.reply(Reset())
    with ThreadPoolExecutor(_WAITING + 1) as pool:
        asked = begin(narrow, pool)
        both = {"rep_old": engine.url, "rep_new": other.url}
        publish(narrow, both if is_draining else {"rep_new": other.url}, draining="rep_old")
        gate.set()
        answers = [each.result() for each in asked]
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    replicas = sorted(answer.headers["x-forebay-replica"] for answer in answers)
    assert replicas == ["rep_new"] * _WAITING + ["rep_old"]


def test_who_waited_spreads_over_replicas_that_were_added(
    narrow: DataPlaneProcess, engine: ScriptedEngine, other: ScriptedEngine
) -> None:
    publish(narrow, {"rep_old": engine.url})
    gate = threading.Event()
    engine.reply(Gate(gate), whole(chat_reply()))
    before = len(engine.requests)
    with ThreadPoolExecutor(_WAITING + 1) as pool:
        asked = begin(narrow, pool)
        publish(narrow, {"rep_old": engine.url, "rep_new": other.url})
        wait_for(lambda: sum(each.done() for each in asked) == _WAITING, "the new one serves", 10)
        assert len(engine.requests) == before + 1  # as many as it may have
        gate.set()
        answers = [each.result() for each in asked]
    assert [answer.status_code for answer in answers] == [200] * len(answers)
