"""The leash: whoever dies, and however, the process does not stay behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from gateway.up.errors import StartError
from gateway.up.leashed_process import LeashedProcess, ProcessSpec
from tests.fixtures.processes import end_owner, is_alive, read_line, start_owner, wait_for

pytestmark = pytest.mark.faults

# Ends on SIGTERM after saying so; says first that its handler is in place.
_POLITE = """
import signal, sys, time
def leave(*_):
    print("leaving", flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, leave)
print("here", flush=True)
time.sleep(60)
"""
_STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("here", flush=True)
time.sleep(60)
"""
_WITH_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("child", child.pid, flush=True)
time.sleep(60)
"""


def spec_of(tmp_path: Path, script: str, grace_seconds: float = 10.0) -> ProcessSpec:
    return ProcessSpec(
        name="sleeper",
        command=(sys.executable, "-c", script),
        log_path=tmp_path / "sleeper.log",
        env=dict(os.environ),
        grace_seconds=grace_seconds,
    )


def start(spec: ProcessSpec) -> LeashedProcess:
    process = LeashedProcess.start(spec)
    wait_for(lambda: read_log(spec), "the process said something")
    return process


def read_log(spec: ProcessSpec) -> str:
    return spec.log_path.read_text() if spec.log_path.exists() else ""


def test_stop_signal_and_exit_code(tmp_path: Path) -> None:
    process = start(spec_of(tmp_path, _POLITE))
    assert process.find_exit_code() is None
    process.ask_to_stop()
    process.ask_to_stop()
    assert process.wait(10) == 7
    assert "leaving" in read_log(process.spec)
    assert process.spec.log_path.stat().st_mode & 0o077 == 0


def test_a_killed_process_reports_its_signal(tmp_path: Path) -> None:
    process = start(spec_of(tmp_path, _POLITE))
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(10) == 128 + signal.SIGKILL


def test_sigkill_follows_when_the_grace_is_over(tmp_path: Path) -> None:
    process = start(spec_of(tmp_path, _STUBBORN, grace_seconds=0.3))
    asked_at = time.monotonic()
    process.ask_to_stop()
    assert process.wait(10) == 128 + signal.SIGKILL
    assert time.monotonic() - asked_at >= 0.3


def test_kill_does_not_wait_for_the_grace(tmp_path: Path) -> None:
    process = start(spec_of(tmp_path, _STUBBORN, grace_seconds=60))
    process.ask_to_stop()
    process.kill()
    assert process.wait(10) == 128 + signal.SIGKILL


def test_what_a_killed_process_leaves_in_its_group_is_swept(tmp_path: Path) -> None:
    process = start(spec_of(tmp_path, _WITH_CHILD))
    child = int(read_log(process.spec).split()[1])
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(10) == 128 + signal.SIGKILL
    assert not is_alive(child)


def test_a_killed_leash_takes_its_process_with_it(tmp_path: Path) -> None:
    process = start(spec_of(tmp_path, _POLITE))
    os.kill(process.leash_pid, signal.SIGKILL)
    assert process.wait(15) == 128 + signal.SIGKILL
    assert not is_alive(process.pid)


def test_a_killed_owner_leaves_nothing(tmp_path: Path) -> None:
    owner = start_owner(
        """
        import os, sys, time
        from pathlib import Path
        from gateway.up.leashed_process import LeashedProcess, ProcessSpec
        command = (sys.executable, "-c", sys.argv[1])
        process = LeashedProcess.start(ProcessSpec(
            name="sleeper", command=command, log_path=Path(sys.argv[2]), env=dict(os.environ)))
        print(process.pid, process.leash_pid, flush=True)
        time.sleep(60)
        """,
        _POLITE,
        str(tmp_path / "sleeper.log"),
    )
    pid, leash_pid = map(int, read_line(owner).split())
    wait_for(lambda: "here" in (tmp_path / "sleeper.log").read_text(), "the process runs")
    end_owner(owner)
    wait_for(lambda: not is_alive(pid) and not is_alive(leash_pid), "both are gone", 5)
    assert "leaving" in (tmp_path / "sleeper.log").read_text()  # by its stop signal, not by SIGKILL


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    spec = ProcessSpec(
        name="ghost",
        command=(str(tmp_path / "no such program"),),
        log_path=tmp_path / "ghost.log",
        env=dict(os.environ),
    )
    with pytest.raises(StartError, match=r"ghost could not be started"):
        LeashedProcess.start(spec)
    assert "cannot start" in read_log(spec)
