"""What a supervised engine is made of: its states, its process, when it sleeps. Plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from backends.vllm.launch import SleepDepth


class EngineState(StrEnum):
    """How the engine stands; the words are those of a replica's states."""

    STARTING = "starting"  # loading, or waking
    READY = "ready"
    DRAINING = "draining"  # on its way to sleep or to the end
    SLEEPING = "sleeping"
    FAILED = "failed"  # died, and started again after a while; or it does not answer


class EngineStartError(Exception):
    """The command cannot be run; the text says why."""


class Process(Protocol):
    """The process as its launcher hands it over. No method waits for long."""

    @property
    def pid(self) -> int:
        """Return its id."""

    def find_exit_code(self) -> int | None:
        """Return the exit code (128 + n for signal n), or None while it runs."""

    def ask_to_stop(self) -> None:
        """Send SIGTERM; SIGKILL follows when the drain is over."""

    def kill(self) -> None:
        """End it at once."""


@dataclass(frozen=True)
class Policy:
    """When it sleeps, how it is restarted. Spans in seconds."""

    sleep: SleepDepth = SleepDepth.STOP
    keep_warm_seconds: float | None = None  # without requests; None: sleeps only when it is told
    begins_asleep: bool = False
    start_limit_seconds: float = 1800.0  # not ready by then: killed and started again
    stop_limit_seconds: float = 60.0  # for the drain and the end; then it is killed
    probe_seconds: float = 1.0
    steady_seconds: float = 30.0  # ready for so long: the next death is a new story
    first_wait_seconds: float = 0.5  # before a restart, at most; doubles with each death
    most_wait_seconds: float = 60.0


@dataclass(frozen=True)
class Launcher:
    """How the process comes to be. ``start`` may block for some milliseconds.

    ``start`` raises :class:`EngineStartError`; ``explain`` returns the log's last word, or "".
    """

    start: Callable[[], Process]
    explain: Callable[[], str]
    say: Callable[[str], None]
