"""Orphans of an earlier run are ended; a stranger with the same number is left alone."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gateway.up.orphans import end_orphans
from gateway.up.process_identity import end_orphan, find_start_mark, is_same_process
from gateway.up.progress import Progress

pytestmark = pytest.mark.faults


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def test_the_mark_tells_processes_apart(sleeper: subprocess.Popen[bytes]) -> None:
    mark = find_start_mark(sleeper.pid)
    assert mark is not None
    assert is_same_process(sleeper.pid, mark)
    assert not is_same_process(sleeper.pid, mark + "1")
    sleeper.kill()
    sleeper.wait()
    assert find_start_mark(sleeper.pid) is None
    assert not is_same_process(sleeper.pid, mark)


def test_a_zombie_counts_as_gone(sleeper: subprocess.Popen[bytes]) -> None:
    mark = find_start_mark(sleeper.pid)
    sleeper.kill()
    end_orphan(sleeper.pid, mark, stop_signal=signal.SIGTERM, patience_seconds=2)  # not reaped
    assert find_start_mark(sleeper.pid) is None


def test_an_orphan_is_asked_then_killed(sleeper: subprocess.Popen[bytes]) -> None:
    mark = find_start_mark(sleeper.pid)
    end_orphan(sleeper.pid, mark, stop_signal=signal.SIGTERM, patience_seconds=0.2)
    assert sleeper.wait(5) == -signal.SIGTERM


def test_a_stranger_with_a_recorded_number_lives_on(sleeper: subprocess.Popen[bytes]) -> None:
    record = {
        "name": "data plane",
        "pid": sleeper.pid,
        "start_mark": "another boot:1",
        "leash_pid": sleeper.pid,
        "leash_start_mark": "another boot:1",
        "stop_signal": int(signal.SIGKILL),
        "patience_seconds": 0.0,
    }
    end_orphans([record], Progress(io.StringIO()))
    assert sleeper.poll() is None
