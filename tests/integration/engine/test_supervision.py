"""``forebay engine run`` with a real process: starts, deaths, loops, and the end of everybody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fixtures.processes import is_alive, wait_for
from tests.fixtures.supervised_engine import SupervisedEngine, run_supervised_engine

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SupervisedEngine]:
    with run_supervised_engine(tmp_path_factory.mktemp("engine")) as running:
        yield running


def test_it_serves_and_tells_how_it_stands(engine: SupervisedEngine) -> None:
    report = engine.wait_for_state("ready")
    assert engine.complete().status_code == 200
    assert report["wake_seconds"] > 0
    assert report["wake_left_seconds"] == 0
    assert report["pid"] == engine.starts[-1]
    assert report["reason"] is None


@pytest.mark.parametrize("token", [None, "another"])
@pytest.mark.parametrize(("method", "path"), [("GET", "/state"), ("POST", "/sleep")])
def test_the_agent_asks_for_its_token(
    engine: SupervisedEngine, method: str, path: str, token: str | None
) -> None:
    assert engine.ask(method, path, token).status_code == 401
    assert engine.report()["state"] == "ready"


def test_other_paths_and_methods(engine: SupervisedEngine) -> None:
    assert engine.ask("GET", "/health", None).status_code == 200
    assert engine.ask("GET", "/wake").status_code == 405
    assert engine.ask("GET", "/elsewhere").status_code == 404


def test_a_killed_engine_is_back_at_once(engine: SupervisedEngine) -> None:
    engine.wait_for_state("ready")
    killed = engine.starts[-1]
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: engine.starts[-1] != killed, "another start")
    report = engine.wait_for_state("ready")
    assert report["failures"] == 1
    assert "killed by signal 9" in engine.said
    assert engine.complete().status_code == 200


def test_a_loop_is_explained_and_slows_down(tmp_path: Path) -> None:
    (tmp_path / "fails").touch()
    with run_supervised_engine(tmp_path, is_ready=False) as engine:
        wait_for(lambda: engine.report()["failures"] >= 3, "three failures")
        report = engine.wait_for_state("failed")
        assert report["reason"] == "ended with code 3: ValueError: no such weights"
        (tmp_path / "fails").unlink()
        engine.wait_for_state("ready")
        assert engine.report()["reason"] is None


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    with run_supervised_engine(
        tmp_path, "--command", str(tmp_path / "no vllm").replace(" ", "_"), is_ready=False
    ) as engine:
        report = engine.wait_for_state("failed")
        assert "could not be started" in report["reason"]
        assert engine.starts == []


def test_a_killed_supervisor_takes_the_engine_with_it(tmp_path: Path) -> None:
    with run_supervised_engine(tmp_path) as engine:
        engine.process.kill()
        engine.process.wait(10)
        wait_for(lambda: not is_alive(engine.starts[-1]), "the engine is gone")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_the_middle_of_a_start(tmp_path: Path, number: int) -> None:
    with run_supervised_engine(tmp_path, start_seconds=60, is_ready=False) as engine:
        wait_for(lambda: engine.starts, "a start")
        engine.process.send_signal(number)
        assert engine.process.wait(15) == 0
        assert not is_alive(engine.starts[0])


def test_running_requests_end_before_it_does(tmp_path: Path) -> None:
    """The stand-in, as vLLM without ``--shutdown-timeout``, ends at once; the order is ours."""
    with run_supervised_engine(tmp_path) as engine:
        engine.process.terminate()
        assert engine.process.wait(15) == 0
        assert engine.said.rstrip().endswith("stopped")
        with pytest.raises(httpx.TransportError):
            engine.report()


def test_without_a_token_an_agent_stays_on_loopback(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    command = [sys.executable, "-m", "gateway.cli.main", "engine", "run", "small"]
    command += ["--agent-host", "::", "--agent-port", "0", "--state-dir", str(tmp_path)]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "needs a token" in ended.stderr
