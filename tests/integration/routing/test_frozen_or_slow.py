"""A frozen engine is told from one that is slow to say how it is, on real sockets.

Engine and prober share the test's event loop, so a busy machine delays both alike.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from backends.vllm.ask import ask
from gateway.dataplane.sweep import SWEEP_SECONDS
from routing import stall_watch
from routing.replica_watch import ProbeTimes
from routing.types import ReplicaState as State
from routing.types import RequestShape
from tests.fixtures.probed_engine import Engine, probed, until

SILENCE_SECONDS = 0.5
QUICK = ProbeTimes(interval_seconds=0.02, timeout_seconds=0.1, silence_seconds=SILENCE_SECONDS)
RARE = ProbeTimes(interval_seconds=60.0, timeout_seconds=0.2, silence_seconds=SILENCE_SECONDS)
NEVER = 60.0
BUSY_PAGE = b"""vllm:num_requests_running{engine="0"} 1.0
vllm:num_requests_waiting{engine="0"} 0.0
vllm:generation_tokens_total{engine="0"} 7.0
"""
IDLE_PAGE = BUSY_PAGE.replace(b"} 1.0", b"} 0.0")


async def test_a_frozen_engine_fails_in_one_probe_and_is_back_as_soon_as_it_answers() -> None:
    engine = Engine()
    async with probed(engine, QUICK) as it:
        await it.until_probed()
        asked = engine.asked.count("/health")
        engine.runs.clear()
        await it.until_state(State.FAILED)
        assert it.watch.is_silent
        assert engine.asked.count("/health") <= asked + 4  # three at once, and who came before
        engine.runs.set()
        await until(lambda: it.view.state in (State.READY, State.SATURATED))
        assert not it.watch.is_silent


def test_by_default_nothing_waits_for_a_frozen_engine_for_much_longer_than_four_seconds() -> None:
    times = ProbeTimes()
    assert times.interval_seconds + times.silence_seconds + SWEEP_SECONDS < 4.5


async def test_late_answers_count_however_many_questions_are_open() -> None:
    engine = Engine()
    async with probed(engine, QUICK) as it:
        await it.until_probed()
        engine.health_delay_seconds = SILENCE_SECONDS * 0.6  # longer than any question once had
        for _ in range(4):
            await it.until_probed()
            assert it.view.state is not State.FAILED
        assert engine.asked.count("/metrics") >= 4  # each was answered


async def test_one_lost_connection_is_no_frozen_engine() -> None:
    engine = Engine()
    async with probed(engine, QUICK) as it:
        await it.until_probed()
        engine.pages["/health"] = None  # which the open connections wait for till they are closed
        await until(lambda: engine.asked[-1] == "/health")
        engine.pages["/health"] = (200, b"")
        await it.until_probed(0)
        assert it.view.state is not State.FAILED


async def test_a_slow_health_check_fails_nobody_whose_requests_get_something() -> None:
    engine = Engine()
    async with probed(engine, QUICK) as it:
        await it.until_probed()
        engine.health_delay_seconds = NEVER
        begun_at = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < begun_at + 3 * SILENCE_SECONDS:
            await ask(it.lines, "GET", "/metrics", timeout_seconds=5.0)
            await asyncio.sleep(0.01)
            assert it.view.state is not State.FAILED
        await it.until_state(State.FAILED)  # nothing more comes


async def test_who_freezes_before_it_has_given_its_metrics_is_asked_again_at_once() -> None:
    engine = Engine()
    async with probed(engine, RARE) as it:
        await it.until_probed(0)
        engine.pages["/metrics"] = None
        it.watch.note_connect_failure()  # brings the next probe forward
        await until(lambda: engine.asked.count("/metrics") == 2)
        engine.runs.clear()
        await it.until_state(State.FAILED)


async def test_metrics_that_never_come_hurry_nobody() -> None:
    engine = Engine()
    engine.pages["/metrics"] = None
    async with probed(engine, RARE) as it:
        await until(lambda: it.view.probed_at is not None)
        await asyncio.sleep(2 * RARE.timeout_seconds)
        assert engine.asked.count("/health") == 1
        assert it.view.state is State.READY


async def test_what_the_gateway_slept_through_is_not_the_engine_s_silence() -> None:
    engine = Engine()
    async with probed(engine, QUICK) as it:
        await it.until_probed()
        engine.health_delay_seconds = SILENCE_SECONDS / 10
        await it.until_probed()
        await until(lambda: engine.asked[-1] == "/health")
        time.sleep(SILENCE_SECONDS * 1.5)  # noqa: ASYNC251 - as a machine that is stopped does
        await it.until_probed(0)
        assert it.view.state is not State.FAILED


async def test_its_agent_is_asked_while_an_engine_says_nothing() -> None:
    engine, agent = Engine(), Engine()
    agent.pages["/state"] = (200, b'{"state":"sleeping"}')
    times = ProbeTimes(interval_seconds=0.02, timeout_seconds=5.0, silence_seconds=2.0)
    async with probed(engine, times, agent=agent) as it:
        await it.until_probed()
        engine.runs.clear()
        await until(lambda: "/state" in agent.asked)
        assert it.view.state in (State.READY, State.SATURATED)  # nobody has given it up yet
        await it.until_state(State.SLEEPING)


async def test_an_agent_that_is_gone_with_its_engine_takes_no_time_of_its_own() -> None:
    engine, agent = Engine(), Engine()
    times = ProbeTimes(interval_seconds=0.02, timeout_seconds=1.0, silence_seconds=2.0)
    async with probed(engine, times, agent=agent) as it:
        await it.until_probed()
        agent.runs.clear()
        engine.runs.clear()
        frozen_at = asyncio.get_running_loop().time()
        await it.until_state(State.FAILED)
        assert it.view.probed_at is not None
        # Where it was asked only then, its own second would come on top.
        assert it.view.probed_at - frozen_at < times.silence_seconds + times.timeout_seconds


async def test_who_is_well_and_answers_nothing_is_spared_and_then_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stall_watch, "LOST_SECONDS", 1.0)
    monkeypatch.setattr(stall_watch, "IDLE_PAGES_SECONDS", 0.1)
    engine = Engine()
    engine.pages["/metrics"] = (200, BUSY_PAGE)
    async with probed(engine, QUICK) as it:
        clock = asyncio.get_running_loop().time
        it.view.begin(RequestShape(10, 10), clock())
        await it.until_probed()
        engine.pages["/metrics"] = (200, IDLE_PAGE)
        await until(lambda: it.view.breaker.cooling_until > clock())  # nothing new is sent there
        assert it.view.state is State.READY
        assert not it.watch.is_silent
        await it.until_state(State.FAILED)
        assert it.watch.is_silent  # what waits there may be taken back
        assert it.view.breaker.open_until is not None  # one request at a time tries it
        await ask(it.lines, "GET", "/metrics", timeout_seconds=5.0)
        await it.until_state(State.READY)
        assert not it.watch.is_silent
