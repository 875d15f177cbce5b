"""The data plane's side: one wake for all, limits, clients that leave, replicas that cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from gateway.dataplane.wake import Waker
from gateway.errors import UnavailableError
from gateway.snapshot.model import Replica
from gateway.up.ports import reserve_port
from tests.fixtures.processes import wait_for
from tests.fixtures.supervised_engine import TOKEN, SupervisedEngine, run_supervised_engine


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SupervisedEngine]:
    with run_supervised_engine(tmp_path_factory.mktemp("engine")) as running:
        yield running


@pytest.fixture
async def waker() -> AsyncIterator[Waker]:
    made = Waker()
    yield made
    await made.close()


@pytest.fixture
def sleeping(engine: SupervisedEngine) -> Replica:
    engine.wait_for_state("ready")
    engine.ask("POST", "/sleep")
    engine.wait_for_state("sleeping")
    return replica_of(engine)


def replica_of(engine: SupervisedEngine) -> Replica:
    return Replica(id="rep_1", base_url=engine.url, secret=TOKEN, agent_url=engine.agent_url)


def nobody(replica_id: str) -> Replica:
    url = f"http://127.0.0.1:{reserve_port('127.0.0.1', 0, 'a port')}"
    return Replica(id=replica_id, base_url=url, agent_url=url)


class Keeper:
    def __init__(self) -> None:
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1


async def test_fifty_requests_are_one_wake(
    engine: SupervisedEngine, waker: Waker, sleeping: Replica
) -> None:
    before = len(engine.starts)
    keepers = [Keeper() for _ in range(50)]
    found = await asyncio.gather(
        *(waker.wake("dep_1", [sleeping], 60.0, keeper) for keeper in keepers)
    )
    assert {replica.id for replica in found} == {"rep_1"}
    assert engine.is_engine_up()
    assert len(engine.starts) == before + 1
    assert {keeper.stops for keeper in keepers} == {1}


async def test_after_the_limit_a_client_is_told_when_to_come_back(
    engine: SupervisedEngine, waker: Waker, sleeping: Replica
) -> None:
    before, usual = len(engine.starts), engine.report()["wake_seconds"]
    keeper = Keeper()
    with pytest.raises(UnavailableError) as refused:
        await waker.wake("dep_1", [sleeping], 0.1, keeper)
    assert refused.value.code == "engine_waking"
    assert refused.value.status == 503
    assert 0 < refused.value.retry_after_seconds <= usual + 1
    assert keeper.stops == 1
    await waker.wake("dep_1", [sleeping], 60.0)  # the wake went on
    assert len(engine.starts) == before + 1


async def test_a_client_that_leaves_does_not_stop_the_wake(
    engine: SupervisedEngine, waker: Waker, sleeping: Replica
) -> None:
    keeper = Keeper()
    gone = asyncio.create_task(waker.wake("dep_1", [sleeping], 60.0, keeper))
    other = asyncio.create_task(waker.wake("dep_1", [sleeping], 60.0))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert keeper.stops == 1
    assert (await other).id == "rep_1"
    assert engine.report()["state"] == "ready"


async def test_the_next_replica_is_woken_when_one_cannot_be(
    engine: SupervisedEngine, waker: Waker, sleeping: Replica
) -> None:
    found = await waker.wake("dep_1", [nobody("rep_0"), sleeping], 60.0)
    assert found.id == "rep_1"


async def test_nobody_can_be_woken(waker: Waker) -> None:
    waits = (waker.wake("dep_1", [nobody("rep_0")], 60.0) for _ in range(2))
    first, second = await asyncio.gather(*waits, return_exceptions=True)
    assert isinstance(first, UnavailableError)
    assert first.code == "engine_unreachable"
    # Each client's own: the steps that refuse add their headers to it.
    assert first is not second


async def test_a_wrong_token_wakes_nobody(
    engine: SupervisedEngine, waker: Waker, sleeping: Replica
) -> None:
    stranger = Replica(id="rep_9", base_url=engine.url, secret="x", agent_url=engine.agent_url)
    with pytest.raises(UnavailableError, match="No engine"):
        await waker.wake("dep_1", [stranger], 60.0)
    assert engine.report()["state"] == "sleeping"
    await waker.wake("dep_1", [sleeping], 60.0)


async def test_an_engine_without_an_agent_is_woken_itself(
    waker: Waker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("level")
    with run_supervised_engine(folder, "--sleep", "level_1") as level:
        found = await waker.wake("dep_2", [Replica(id="rep_2", base_url=level.url)], 60.0)
        assert found.id == "rep_2"
        wait_for(lambda: level.calls == ["/wake_up"], "the call")
