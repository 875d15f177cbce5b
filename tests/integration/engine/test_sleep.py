"""Sleep and wake, by the process's end and by vLLM's sleep mode; fifty wakes are one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fixtures.processes import is_alive, wait_for
from tests.fixtures.supervised_engine import SupervisedEngine, run_supervised_engine


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SupervisedEngine]:
    with run_supervised_engine(tmp_path_factory.mktemp("engine")) as running:
        yield running


@pytest.fixture(scope="module")
def level(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SupervisedEngine]:
    folder = tmp_path_factory.mktemp("level")
    with run_supervised_engine(folder, "--sleep", "level_1") as running:
        yield running


def put_to_sleep(engine: SupervisedEngine) -> None:
    engine.wait_for_state("ready")
    assert engine.ask("POST", "/sleep").status_code == 202
    engine.wait_for_state("sleeping")


def test_sleep_stops_the_process_and_wake_starts_it(engine: SupervisedEngine) -> None:
    put_to_sleep(engine)
    assert not is_alive(engine.starts[-1])
    report = engine.report()
    assert report["pid"] is None
    assert report["wake_left_seconds"] == report["wake_seconds"] > 0
    assert engine.ask("POST", "/wake").json()["state"] in {"sleeping", "starting"}
    engine.wait_for_state("ready")
    assert engine.complete().status_code == 200


def test_fifty_wakes_at_once_start_it_once(engine: SupervisedEngine) -> None:
    put_to_sleep(engine)
    before = len(engine.starts)
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: engine.ask("POST", "/wake"), range(50)))
    assert {answer.status_code for answer in answers} == {202}
    engine.wait_for_state("ready")
    assert len(engine.starts) == before + 1


def test_a_wake_in_the_middle_of_falling_asleep(engine: SupervisedEngine) -> None:
    engine.wait_for_state("ready")
    engine.ask("POST", "/sleep")
    engine.ask("POST", "/wake")
    engine.wait_for_state("ready")
    wait_for(engine.is_engine_up, "the engine")


def test_sleep_in_the_middle_of_a_start(engine: SupervisedEngine) -> None:
    put_to_sleep(engine)
    engine.ask("POST", "/wake")
    engine.wait_for_state("starting", "ready")
    put = engine.ask("POST", "/sleep")
    assert put.status_code == 202
    engine.wait_for_state("sleeping")
    assert not is_alive(engine.starts[-1])
    engine.ask("POST", "/wake")
    engine.wait_for_state("ready")


def test_an_idle_engine_goes_to_sleep_and_a_busy_one_does_not(tmp_path: Path) -> None:
    with run_supervised_engine(tmp_path, "--keep-warm-seconds", "1.5") as engine:
        body = {"model": "small", "prompt": "one", "max_tokens": 300, "stream": True}
        with engine.client.stream("POST", f"{engine.url}/v1/completions", json=body) as reply:
            text = reply.read()  # about 3 s: twice as long as it is kept warm
        assert b"[DONE]" in text
        engine.wait_for_state("sleeping")
        assert "no request for 1.5 s" in engine.said
        assert len(engine.starts) == 1


def test_it_may_begin_asleep(tmp_path: Path) -> None:
    with run_supervised_engine(tmp_path, "--asleep", is_ready=False) as engine:
        report = engine.wait_for_state("sleeping")
        assert engine.starts == []
        assert report["wake_seconds"] is None
        assert report["wake_left_seconds"] is None
        engine.ask("POST", "/wake")
        engine.wait_for_state("ready")


def test_level_1_keeps_the_process(level: SupervisedEngine) -> None:
    put_to_sleep(level)
    before = level.starts
    assert is_alive(before[-1])
    level.ask("POST", "/wake")
    level.wait_for_state("ready")
    assert level.calls[-2:] == ["/sleep?level=1&mode=wait", "/wake_up"]
    assert level.starts == before
    assert level.report()["wake_seconds"] < 5


def test_a_request_that_reached_the_sleeping_engine_wakes_it(level: SupervisedEngine) -> None:
    put_to_sleep(level)
    level.client.post(f"{level.url}/waiting", content="1")
    level.wait_for_state("ready")
    level.client.post(f"{level.url}/waiting", content="0")
    assert "a request waits in the sleeping engine" in level.said


def test_an_engine_that_cannot_be_woken_is_started_anew(level: SupervisedEngine) -> None:
    put_to_sleep(level)
    before = len(level.starts)
    (level.folder / "no_wake").touch()
    level.ask("POST", "/wake")
    level.wait_for_state("ready")
    (level.folder / "no_wake").unlink()
    assert len(level.starts) == before + 1


def test_an_engine_killed_in_its_sleep_is_started_by_the_next_wake(
    level: SupervisedEngine,
) -> None:
    put_to_sleep(level)
    before = level.starts
    os.kill(before[-1], signal.SIGKILL)
    wait_for(lambda: level.report()["pid"] is None, "it was noticed")
    assert level.report()["state"] == "sleeping"
    level.ask("POST", "/wake")
    level.wait_for_state("ready")
    assert len(level.starts) == len(before) + 1
    assert level.report()["failures"] == 0


def test_level_2_reads_the_weights_again(tmp_path: Path) -> None:
    with run_supervised_engine(tmp_path, "--sleep", "level_2") as engine:
        put_to_sleep(engine)
        engine.ask("POST", "/wake")
        engine.wait_for_state("ready")
        assert engine.calls == [
            "/sleep?level=2&mode=wait",
            "/wake_up?tags=weights",
            '/collective_rpc {"method":"reload_weights"}',
            "/wake_up?tags=kv_cache",
        ]
