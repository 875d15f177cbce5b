"""A process that we start on one CPU, watch, and end for sure, with all that it started."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.overhead.errors import StartError
from benchmarks.overhead.machine import on_cpu

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_STOP_SECONDS = 5.0


@dataclass(frozen=True)
class _Identity:
    """A PID together with its start time, so that a reused PID is not taken for ours."""

    pid: int
    started_ticks: int


class PinnedProcess:
    """One started command and its descendants."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        """PID of the command itself."""
        return self._process.pid

    def pids(self) -> list[int]:
        """Return the PIDs of the command and its living descendants."""
        return _tree_of(self.pid)

    def cpu_seconds(self) -> float:
        """Return the CPU time used so far by the living processes of the tree."""
        return sum(_cpu_seconds_of(pid) for pid in self.pids())

    def rss_mb(self) -> tuple[float, float]:
        """Return resident memory in MB: of the largest process, and of all together."""
        sizes = [_memory_mb_of(pid, "VmRSS") for pid in self.pids()]
        return max(sizes, default=0.0), sum(sizes)

    def peak_rss_mb(self) -> float:
        """Return the most resident memory, in MB, that any one living process ever had."""
        return max((_memory_mb_of(pid, "VmHWM") for pid in self.pids()), default=0.0)

    def read_log(self) -> str:
        """Return the end of what the process has written, for an error message."""
        return self._log.read_text(errors="replace")[-2000:].strip()

    def check_running(self) -> None:
        """Raise StartError, with the end of its log, when the process has ended."""
        status = self._process.poll()
        if status is not None:
            raise StartError(f"{self.name} ended with status {status}: {self.read_log()}")

    def stop(self) -> None:
        """End the whole tree: SIGTERM to the command, after 5 s SIGKILL to whoever is left."""
        family = [identity for pid in self.pids() if (identity := _find_identity(pid))]
        if self._process.poll() is None:
            self._process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < deadline:
            self._process.poll()  # reaps it, else it stays in the list as a zombie
            if not any(_is_alive(identity) for identity in family):
                break
            time.sleep(0.02)
        for identity in family:
            if _is_alive(identity):
                os.kill(identity.pid, signal.SIGKILL)
        self._process.wait(timeout=_STOP_SECONDS)


def start_pinned(
    name: str, command: list[str], *, cpu: int, log: Path, environment: dict[str, str] | None = None
) -> PinnedProcess:
    """Start ``command`` on ``cpu`` in a session of its own, its output going to ``log``.

    The own session keeps Ctrl-C from reaching it: the benchmark ends it in its own order.
    """
    with log.open("wb") as output, on_cpu(cpu):
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    return PinnedProcess(name, process, log)


def _tree_of(pid: int) -> list[int]:
    pids = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            listed = children.read_text().split()
        except OSError:  # the thread ended meanwhile
            continue
        for child in listed:
            pids += _tree_of(int(child))
    return pids


def _read_stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third on, or None when there is no such PID."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _find_identity(pid: int) -> _Identity | None:
    fields = _read_stat(pid)
    return _Identity(pid, int(fields[19])) if fields else None


def _is_alive(identity: _Identity) -> bool:
    fields = _read_stat(identity.pid)
    return fields is not None and fields[0] != "Z" and int(fields[19]) == identity.started_ticks


def _cpu_seconds_of(pid: int) -> float:
    fields = _read_stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND if fields else 0.0


def _memory_mb_of(pid: int, field: str) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(rf"^{field}:\s+(\d+)", status, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0
