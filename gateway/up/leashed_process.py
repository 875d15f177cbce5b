"""A child process of ours behind a leash: start it, ask it to stop, learn how it ended."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gateway.up.errors import StartError
from gateway.up.process_identity import end_orphan, find_start_mark

_LEASH = Path(__file__).with_name("leash.py")
# How long a process may outlive a leash that was killed before we end it ourselves.
_ORPHAN_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class ServerUser:
    """The unprivileged account that a server runs as when we are root."""

    uid: int
    gid: int


@dataclass(frozen=True)
class ProcessSpec:
    """How to run one child process."""

    name: str
    command: tuple[str, ...]
    log_path: Path
    env: Mapping[str, str]
    cwd: Path = Path("/")
    stop_signal: int = signal.SIGTERM
    grace_seconds: float = 30.0  # between the stop signal and SIGKILL
    user: ServerUser | None = None
    pass_fds: tuple[int, ...] = ()
    remove_directory: Path | None = None  # removed at the end if it is empty
    orphan_patience_seconds: float = 1.5  # how long a later start waits before it kills it


class LeashedProcess:
    """One running child; its leash ends it when this (owning) process dies, however it dies."""

    def __init__(self, spec: ProcessSpec, leash: subprocess.Popen[bytes], pid: int) -> None:
        self.spec = spec
        self.pid = pid
        self.start_mark = find_start_mark(pid)
        self.leash_start_mark = find_start_mark(leash.pid)
        self._leash = leash

    @classmethod
    def start(cls, spec: ProcessSpec) -> Self:
        """Start the process. Raises :class:`StartError` when the program cannot be run."""
        instructions = {
            "command": spec.command,
            "log": str(spec.log_path),
            "stop_signal": int(spec.stop_signal),
            "grace_seconds": spec.grace_seconds,
            "user": None if spec.user is None else [spec.user.uid, spec.user.gid],
            "pass_fds": spec.pass_fds,
            "remove_directory": str(spec.remove_directory) if spec.remove_directory else None,
        }
        leash = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_LEASH), json.dumps(instructions)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(spec.env),
            cwd=spec.cwd,
            pass_fds=spec.pass_fds,
            start_new_session=True,  # Ctrl-C at the terminal reaches the owner only
        )
        assert leash.stdout is not None  # noqa: S101 - for the type checker
        with leash.stdout as report:
            line = report.readline()
        if not line:
            leash.wait()
            _close(leash)
            raise StartError(f"{spec.name} could not be started; see {spec.log_path}.")
        return cls(spec, leash, int(line))

    @property
    def leash_pid(self) -> int:
        """Return the process id of the leash."""
        return self._leash.pid

    def find_exit_code(self) -> int | None:
        """Return the exit code (128 + n for signal n), or None while it runs.

        A leash that was killed takes its process with it, so that no second one runs beside it.
        """
        code = self._leash.poll()
        if code is None:
            return None
        _close(self._leash)
        if code < 0:
            end_orphan(
                self.pid,
                self.start_mark,
                stop_signal=self.spec.stop_signal,
                patience_seconds=_ORPHAN_PATIENCE_SECONDS,
            )
            return 128 - code
        return code

    def ask_to_stop(self) -> None:
        """Have the stop signal sent; SIGKILL follows after the spec's grace. Idempotent."""
        self._wish(b"s")

    def kill(self) -> None:
        """End it at once."""
        self._wish(b"!")

    def _wish(self, wish: bytes) -> None:
        if self._leash.stdin is not None and not self._leash.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._leash.stdin.write(wish)
                self._leash.stdin.flush()

    def wait(self, timeout_seconds: float) -> int:
        """Wait for the end and return the exit code. Raises :class:`TimeoutError`."""
        give_up_at = time.monotonic() + timeout_seconds
        while True:
            code = self.find_exit_code()
            if code is not None:
                return code
            remaining = give_up_at - time.monotonic()
            if remaining <= 0:
                raise TimeoutError(f"{self.spec.name} did not end in {timeout_seconds} s")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._leash.wait(min(remaining, 0.5))


def _close(leash: subprocess.Popen[bytes]) -> None:
    if leash.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            leash.stdin.close()
