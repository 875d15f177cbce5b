"""Tell a process from a later one that got the same number."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import time
from pathlib import Path

IS_LINUX = platform.system() == "Linux"

_POLL_SECONDS = 0.02
# In /proc/PID/stat after the name in parentheses: state is field 3, start time is field 22.
_START_FIELD_AFTER_NAME = 19


def find_start_mark(pid: int) -> str | None:
    """Return a text that is the same as long as ``pid`` is the same process.

    None when there is no such process, or when it has ended and only waits to be reaped.
    """
    if IS_LINUX:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        fields = stat.rpartition(")")[2].split()
        if fields[0] in "ZX":
            return None
        return f"{_boot_id()}:{fields[_START_FIELD_AFTER_NAME]}"
    listed = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listed.stdout.strip() or None


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def is_same_process(pid: int, start_mark: str | None) -> bool:
    """Tell whether ``pid`` still is the process whose mark was taken before."""
    return start_mark is not None and find_start_mark(pid) == start_mark


def wait_until_gone(pid: int, start_mark: str | None, timeout_seconds: float) -> bool:
    """Wait for a process that is not our child to end; False when it outlives the timeout."""
    give_up_at = time.monotonic() + timeout_seconds
    while is_same_process(pid, start_mark):
        if time.monotonic() >= give_up_at:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def end_orphan(
    pid: int, start_mark: str | None, *, stop_signal: int, patience_seconds: float
) -> None:
    """See to it that a process of an earlier run is gone; never touch another one.

    Gives it ``patience_seconds`` to end by itself (its leash stops it), the same again after the
    stop signal, then kills it.
    """
    if wait_until_gone(pid, start_mark, patience_seconds):
        return
    for number in (stop_signal, signal.SIGKILL):
        if is_same_process(pid, start_mark):
            os.kill(pid, number)
        if wait_until_gone(pid, start_mark, patience_seconds):
            return
