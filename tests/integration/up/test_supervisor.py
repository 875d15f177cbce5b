"""The supervisor with small real processes: restarts, loops, readiness, the order of the stop."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.up import supervisor as supervisor_module
from gateway.up.errors import StartError
from gateway.up.leashed_process import LeashedProcess, ProcessSpec
from gateway.up.progress import Progress
from gateway.up.supervisor import StopWanted, Supervisor
from tests.fixtures.processes import is_alive

pytestmark = pytest.mark.faults

# Marks itself ready by a file, appends its name to a common file when it is stopped.
_WORKING = """
import pathlib, signal, sys, time
name, ready, order, drain = sys.argv[1:]
def leave(*_):
    time.sleep(float(drain))
    with open(order, "a") as file:
        file.write(name + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
pathlib.Path(ready).touch()
time.sleep(60)
"""
_FAILING = "import sys; print('ERROR: no weights', file=sys.stderr); sys.exit(3)"


@dataclass
class SmallPart:
    """A part whose process is a few lines of Python."""

    name: str
    folder: Path
    script: str = _WORKING
    drain_seconds: float = 0.0
    launches: int = 0
    log_path: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log_path = self.folder / f"{self.name}.log"

    @property
    def ready_file(self) -> Path:
        return self.folder / f"{self.name}.ready"

    def launch(self) -> LeashedProcess:
        self.launches += 1
        self.ready_file.unlink(missing_ok=True)
        arguments = (str(self.ready_file), str(self.folder / "order"), str(self.drain_seconds))
        return LeashedProcess.start(
            ProcessSpec(
                name=self.name,
                command=(sys.executable, "-c", self.script, self.name, *arguments),
                log_path=self.log_path,
                env=dict(os.environ),
            )
        )

    def is_ready(self) -> bool:
        return self.ready_file.exists()

    def explain_failure(self) -> str:
        return f"The {self.name} did not start: {self.log_path.read_text().strip()}."


class Stage:
    """A supervisor whose lines and stop requests a test controls."""

    def __init__(self) -> None:
        self.said = io.StringIO()
        self.stops = 0
        self.supervisor = Supervisor(Progress(self.said), lambda: self.stops)
        self.parts: list[SmallPart] = []

    def add(self, part: SmallPart) -> SmallPart:
        self.parts.append(part)
        self.supervisor.launch(part)
        return part

    def pid_of(self, part: SmallPart) -> int:
        return dict(self.supervisor.processes())[part.name].pid

    def tick_until(self, condition: object, timeout_seconds: float = 15.0) -> None:
        assert callable(condition)
        give_up_at = time.monotonic() + timeout_seconds
        while not condition():
            assert time.monotonic() < give_up_at, self.said.getvalue()
            self.supervisor.pause()


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.supervisor.stop(made.parts)


def test_a_killed_part_is_restarted_and_both_are_told(stage: Stage, tmp_path: Path) -> None:
    part = stage.add(SmallPart("plane", tmp_path))
    stage.supervisor.wait_ready(part, 10)
    first = stage.pid_of(part)
    os.kill(first, signal.SIGKILL)
    stage.tick_until(lambda: "plane is back." in stage.said.getvalue())
    assert stage.pid_of(part) != first
    assert "plane was killed by signal 9; restarting it" in stage.said.getvalue()
    assert part.launches == 2


def test_the_others_run_on_meanwhile(stage: Stage, tmp_path: Path) -> None:
    one, other = stage.add(SmallPart("one", tmp_path)), stage.add(SmallPart("other", tmp_path))
    for part in (one, other):
        stage.supervisor.wait_ready(part, 10)
    untouched = stage.pid_of(other)
    os.kill(stage.pid_of(one), signal.SIGKILL)
    stage.tick_until(lambda: one.launches == 2)
    assert stage.pid_of(other) == untouched


def test_a_part_that_cannot_start_is_explained(stage: Stage, tmp_path: Path) -> None:
    part = stage.add(SmallPart("engine", tmp_path, _FAILING))
    with pytest.raises(StartError, match="The engine did not start: ERROR: no weights"):
        stage.supervisor.wait_ready(part, 10)


def test_waiting_for_one_part_ends_when_another_cannot_start(stage: Stage, tmp_path: Path) -> None:
    slow = stage.add(SmallPart("engine", tmp_path, "import time; time.sleep(60)"))
    stage.add(SmallPart("plane", tmp_path, _FAILING))
    with pytest.raises(StartError, match="The plane did not start: ERROR: no weights"):
        stage.supervisor.wait_ready(slow, 30)


def test_a_part_that_never_gets_ready(stage: Stage, tmp_path: Path) -> None:
    part = stage.add(SmallPart("engine", tmp_path, "import time; time.sleep(60)"))
    with pytest.raises(StartError, match="engine was not ready after"):
        stage.supervisor.wait_ready(part, 0.5)


def test_a_loop_is_told_in_one_sentence_and_waits_grow(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "BACKOFF_SECONDS", (0.01, 0.02, 0.02, 0.02, 0.02, 5.0))
    part = stage.add(SmallPart("engine", tmp_path))
    stage.supervisor.wait_ready(part, 10)
    part.script = _FAILING
    os.kill(stage.pid_of(part), signal.SIGKILL)
    stage.tick_until(lambda: "engine has failed 5 times in a row" in stage.said.getvalue())
    for _ in range(20):
        stage.supervisor.pause()
    lines = stage.said.getvalue().splitlines()
    assert sum("in a row" in line for line in lines) == 1
    assert str(part.log_path) in lines[-1]
    assert part.launches <= 7


def test_stop_keeps_the_order_and_lets_each_drain(stage: Stage, tmp_path: Path) -> None:
    names = ["data plane", "worker", "database"]
    parts = [stage.add(SmallPart(name, tmp_path, drain_seconds=0.2)) for name in names]
    for part in parts:
        stage.supervisor.wait_ready(part, 10)
    pids = [stage.pid_of(part) for part in parts]
    stage.supervisor.stop(parts)
    assert (tmp_path / "order").read_text().splitlines() == names
    assert not any(is_alive(pid) for pid in pids)


def test_a_second_request_cuts_the_drain_but_not_the_database(tmp_path: Path) -> None:
    stage = Stage()
    plane = stage.add(SmallPart("data plane", tmp_path, drain_seconds=60))
    database = stage.add(SmallPart("PostgreSQL", tmp_path, drain_seconds=0.2))
    for part in (plane, database):
        stage.supervisor.wait_ready(part, 10)
    stage.stops = 1
    with pytest.raises(StopWanted):
        stage.supervisor.pause()
    answers = iter([1])  # counted once when the stop begins; then the second Ctrl-C
    stage.supervisor.stop_requests = lambda: next(answers, 2)
    began_at = time.monotonic()
    stage.supervisor.stop([plane, database])
    assert time.monotonic() - began_at < 10
    assert (tmp_path / "order").read_text().splitlines() == ["PostgreSQL"]


def test_watch_returns_when_a_stop_is_wanted(stage: Stage, tmp_path: Path) -> None:
    part = stage.add(SmallPart("plane", tmp_path))
    stage.supervisor.wait_ready(part, 10)
    stage.stops = 1
    stage.supervisor.watch()
    assert is_alive(stage.pid_of(part))  # stopping is the next step, not this one
