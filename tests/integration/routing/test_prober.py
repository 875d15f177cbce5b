"""The prober on real sockets: engines that answer, are slow, lack metrics, die and come back."""

from __future__ import annotations

import asyncio

import pytest

from backends.http_pool import Endpoint
from backends.vllm.model_list import EngineFacts
from backends.write_queue import WriteQueue
from gateway.snapshot.model import BreakerPolicy
from routing import replica_watch
from routing.load_view import LoadView
from routing.prober import PROBES_PER_SECOND, Prober
from routing.replica_watch import ProbeTimes
from routing.types import ReplicaState as State
from tests.fixtures.probed_engine import MODELS, Engine, probed, until


async def test_what_an_engine_says_is_in_its_view() -> None:
    async with probed(Engine()) as it:
        await it.until_state(State.SATURATED)  # something waits, twice
        await until(lambda: it.watch.facts is not None)
        view = it.view
        assert (view.engine_running, view.engine_waiting, view.kv_usage) == (3, 1, 0.5)
        assert view.kv_capacity_tokens == 1600
        assert view.loaded_adapters == {"poet"}
        assert it.facts == [EngineFacts(4096, ("m",), ("poet",))]
        assert it.engine.connections == 1  # kept
        assert it.endpoint.in_flight <= 1
        assert it.engine.asked.count("/v1/models") == 1


async def test_an_engine_without_metrics_is_as_good_as_any() -> None:
    engine = Engine()
    del engine.pages["/metrics"]
    async with probed(engine) as it:
        await it.until_probed(3)
        assert it.view.state is State.READY
        assert it.view.engine_running is None
        assert it.view.loaded_adapters is None
        assert engine.asked.count("/metrics") == 1  # not asked for again at once


@pytest.mark.parametrize(
    "page", [b"\xff\x00garbage{{{" * 100, b"vllm:num_requests_running " * 300_000]
)
async def test_garbage_for_metrics(page: bytes) -> None:
    engine = Engine()
    engine.pages["/metrics"] = (200, page)
    engine.pages["/v1/models"] = (200, page)
    async with probed(engine) as it:
        await it.until_probed(2)
        assert it.view.state is State.READY
        assert it.view.engine_running is None
        assert it.facts == []


async def test_metrics_that_hang_fail_nobody() -> None:
    engine = Engine()
    engine.pages["/metrics"] = None
    async with probed(engine, ProbeTimes(0.01, 0.05)) as it:
        await it.until_probed(5)
        assert it.view.state is State.READY


async def test_it_dies_and_comes_back_loading() -> None:
    async with probed(Engine()) as it:
        await it.until_probed()
        await it.engine.stop()
        await it.until_state(State.FAILED)
        assert it.view.engine_running is None
        it.engine.pages["/health"] = (503, b"")
        it.engine.pages["/v1/models"] = (200, b'{"data":[{"id":"new"}]}')
        await it.engine.start()
        await it.until_state(State.STARTING)
        it.engine.pages["/health"] = (200, b"")
        await until(lambda: it.view.state in (State.READY, State.SATURATED))
        await until(lambda: it.facts[-1].models == ("new",))


async def test_loading_is_not_ready_although_models_are_listed() -> None:
    engine = Engine()
    engine.pages["/health"] = (503, b"")
    async with probed(engine) as it:
        await it.until_state(State.STARTING)
        await it.until_probed(5)
        assert it.view.state is State.STARTING
        assert "/v1/models" not in engine.asked


async def test_sleep_is_asked_for_where_it_matters() -> None:
    engine = Engine()
    engine.pages["/is_sleeping"] = (200, b'{"is_sleeping":true}')
    async with probed(engine, wants_sleep_state=True) as it:
        await it.until_state(State.SLEEPING)
        it.watch.expect_start(30.0)
        assert it.view.state is State.STARTING
        engine.pages["/is_sleeping"] = (200, b'{"is_sleeping":false}')
        await until(lambda: it.view.state in (State.READY, State.SATURATED))
    other = Engine()
    async with probed(other) as it:
        await it.until_probed(2)
        assert "/is_sleeping" not in other.asked


async def test_draining_by_the_snapshot_and_by_the_engine() -> None:
    async with probed(Engine()) as it:
        await it.until_probed()
        it.view.is_draining = True
        await it.until_state(State.DRAINING)
        it.view.is_draining = False
        await it.until_state(State.SATURATED)
        it.watch.note_engine_drains()
        assert it.view.state is State.DRAINING


async def test_an_engine_that_lists_other_models_is_marked_until_it_lists_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_watch, "_MISSING_MODEL_SECONDS", 0.0)
    engine = Engine()
    engine.pages["/metrics"] = (200, b"")
    async with probed(engine, model="late") as it:
        await it.until_state(State.LACKS_MODEL)
        await it.until_probed(2)
        assert it.view.state is State.LACKS_MODEL
        engine.pages["/v1/models"] = (200, MODELS.replace(b'"poet"', b'"late"'))  # an adapter
        await it.until_state(State.READY)
        asked = engine.asked.count("/v1/models")
        await it.until_probed(2)
        assert engine.asked.count("/v1/models") == asked  # once a minute again


async def test_an_engine_that_serves_a_name_it_does_not_list_is_believed() -> None:
    engine = Engine()
    engine.pages["/metrics"] = (200, b"")
    async with probed(engine, model="alias") as it:
        await it.until_state(State.LACKS_MODEL)
        it.watch.note_success()
        assert it.view.state is State.READY
        await it.until_probed(2)
        assert it.view.state is State.READY


async def test_a_connect_failure_brings_the_next_probe_forward() -> None:
    async with probed(Engine(), ProbeTimes(60.0, 1.0)) as it:
        await until(lambda: it.view.probed_at is not None)
        before = it.view.probed_at
        it.watch.note_connect_failure()
        await until(lambda: it.view.probed_at != before)


async def test_who_is_forgotten_is_left_alone() -> None:
    engine = Engine()
    async with probed(engine) as it:
        await it.until_probed()
        it.prober.forget("rep_1")
        assert it.prober.find("rep_1") is None
        await it.prober.close()
        asked, probed_at = len(engine.asked), it.view.probed_at
        engine.pages["/health"] = (503, b"")
        await asyncio.sleep(0.1)
        assert (len(engine.asked), it.view.probed_at) == (asked, probed_at)
        assert it.endpoint.in_flight == 0


async def test_closing_ends_probes_on_their_way() -> None:
    engine = Engine()
    engine.pages["/health"] = None
    async with probed(engine, ProbeTimes(1.0, 60.0)) as it:
        await until(lambda: bool(engine.asked))
        async with asyncio.timeout(2):
            await it.prober.close()
        assert it.endpoint.in_flight == 0


async def test_many_replicas_stretch_the_interval() -> None:
    prober = Prober(ProbeTimes(1.0, 1.0))
    writes = WriteQueue(asyncio.get_running_loop())
    for number in range(400):
        endpoint = Endpoint("http://127.0.0.1:1", connect_timeout_seconds=1.0, writes=writes)
        prober.watch(f"rep_{number}", endpoint, LoadView(f"rep_{number}", BreakerPolicy()))
    assert prober.interval_seconds == pytest.approx(400 / PROBES_PER_SECOND)
    prober.forget("rep_0")
    assert prober.interval_seconds < 4
