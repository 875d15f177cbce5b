"""The leash: a tiny parent of one process that ends it when the leash's own owner is gone.

Run as a script (``python -I -S leash.py SPEC``), standard library only, so that it starts in a few
milliseconds and needs nothing of the environment. The owner holds the other end of standard input:
the byte ``s``, or end of file (the owner died in any way), stops the process with its stop signal,
and with SIGKILL once the grace is over; the byte ``!`` means "at once". On Linux the kernel also
sends the stop signal when the leash itself is killed.

SPEC is JSON: ``command``, ``log``, ``stop_signal``, ``grace_seconds``, ``user`` (null or
``[uid, gid]``), ``pass_fds``, ``remove_directory`` (null, or one to remove at the end if empty). The first line on standard output is the process id. The exit code is
the process's own; 128 + n when signal n ended it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

_SWEEP_GRACE_SECONDS = 5.0
_POLL_SECONDS = 0.02
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Start the process, report its id, and watch over it until it has ended."""
    spec: dict[str, Any] = json.loads(sys.argv[1])
    wake_fd = _open_wake_pipe()
    process = _start(spec)
    os.write(1, b"%d\n" % process.pid)
    exit_code = _watch(process, spec, wake_fd)
    _sweep_group(process.pid)
    if spec["remove_directory"] is not None:
        with contextlib.suppress(OSError):  # not empty: the next start cleans or uses it
            os.rmdir(spec["remove_directory"])  # noqa: PTH106 - pathlib would double the start time
    return exit_code if exit_code >= 0 else 128 - exit_code


def _open_wake_pipe() -> int:
    """Turn SIGCHLD and SIGTERM into bytes on a pipe; Ctrl-C belongs to the owner alone."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A handler rather than SIG_IGN: the process would inherit an ignored signal.
        signal.signal(number, lambda _number, _frame: None)
    return read_fd


def _start(spec: dict[str, Any]) -> subprocess.Popen[bytes]:
    user = spec["user"]
    identity: dict[str, Any] = {}
    if user is not None:
        identity = {"user": user[0], "group": user[1], "extra_groups": []}
    log_fd = os.open(spec["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            spec["command"],
            stdin=subprocess.DEVNULL,
            stdout=log_fd,
            stderr=log_fd,
            start_new_session=True,  # a group of its own, so that what it leaves can be swept
            pass_fds=spec["pass_fds"],
            preexec_fn=_kernel_leash(spec["stop_signal"]),  # noqa: PLW1509 - one thread only here
            **identity,
        )
    except OSError as error:
        os.write(log_fd, f"leash: cannot start {spec['command'][0]}: {error}\n".encode())
        raise SystemExit(127) from None
    finally:
        os.close(log_fd)


def _kernel_leash(stop_signal: int) -> Callable[[], None] | None:
    """Return what asks the kernel (Linux) to signal the process when this leash dies."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - only where it is used; costs a few milliseconds

    prctl = ctypes.CDLL(None).prctl
    leash_pid = os.getpid()

    def arm() -> None:
        prctl(_PR_SET_PDEATHSIG, stop_signal)
        if os.getppid() != leash_pid:  # the leash died before the request was in force
            os.kill(os.getpid(), signal.SIGKILL)

    return arm


def _watch(process: subprocess.Popen[bytes], spec: dict[str, Any], wake_fd: int) -> int:
    """Wait for the process to end; pass the owner's wishes on. Returns its exit code."""
    listen_to = [wake_fd, 0]
    kill_at: float | None = None
    while True:
        exit_code = process.poll()
        if exit_code is not None:
            return exit_code
        timeout = None if kill_at is None else max(0.0, kill_at - time.monotonic())
        readable, _, _ = select.select(listen_to, [], [], timeout)
        if kill_at is not None and time.monotonic() >= kill_at:
            _signal_group(process.pid, signal.SIGKILL)
            kill_at = time.monotonic() + 1.0
        is_stop_wanted = wake_fd in readable and bytes([signal.SIGTERM]) in os.read(wake_fd, 4096)
        if 0 in readable:
            wish = os.read(0, 1)
            if wish == b"!":
                kill_at = time.monotonic()
            else:
                is_stop_wanted = True
                if not wish:
                    listen_to.remove(0)
        if is_stop_wanted and kill_at is None:
            process.send_signal(spec["stop_signal"])
            kill_at = time.monotonic() + spec["grace_seconds"]


def _sweep_group(group: int) -> None:
    """End what the process left behind in its group, gently first."""
    _signal_group(group, signal.SIGTERM)
    give_up_at = time.monotonic() + _SWEEP_GRACE_SECONDS
    while _signal_group(group, 0) and time.monotonic() < give_up_at:
        time.sleep(_POLL_SECONDS)
    _signal_group(group, signal.SIGKILL)


def _signal_group(group: int, number: int) -> bool:
    """Signal the whole group; tell whether anybody was there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        return True
    return False


if __name__ == "__main__":
    sys.exit(main())
