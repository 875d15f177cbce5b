"""Keep the parts running: start them, restart what dies, stop them in order.

One thread, one loop: :meth:`Supervisor.tick` looks at every part once. What a part needs from
another (a database that is being restarted) it waits for by itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gateway.up.errors import StartError, UpError
from gateway.up.leashed_process import LeashedProcess
from gateway.up.part import Part
from gateway.up.progress import Progress

_LOG = logging.getLogger("forebay.up")

POLL_SECONDS = 0.05
# Quick at first: a part that was killed by hand should be back before anybody notices.
BACKOFF_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
# Ready for this long means that the next death is a new story.
STEADY_SECONDS = 10.0
LOOP_DEATHS = 5  # deaths in a row that are called a loop
_START_ATTEMPTS = 3
_KILL_WAIT_SECONDS = 15.0
# Stopped cleanly even in a hurry.
_KEEPERS = frozenset({"PostgreSQL", "Valkey", "billing worker"})


class StopWanted(Exception):  # noqa: N818 - not an error: the person asked to stop
    """Ctrl-C or SIGTERM arrived."""


@dataclass
class _Running:
    """One part's present state."""

    part: Part
    process: LeashedProcess | None = None
    deaths: int = 0  # in a row
    ready_at: float | None = None
    restart_at: float = 0.0
    has_been_ready: bool = False


@dataclass
class Supervisor:
    """Owns the running parts; :attr:`on_change` is told whenever a process comes or goes."""

    progress: Progress
    stop_requests: Callable[[], int]  # how often a stop was asked for so far
    on_change: Callable[[], None] = lambda: None
    _running: dict[str, _Running] = field(default_factory=dict)

    def processes(self) -> list[tuple[str, LeashedProcess]]:
        """Return the living processes with their parts' names, in the order of their start."""
        return [(name, run.process) for name, run in self._running.items() if run.process]

    def launch(self, part: Part) -> None:
        """Start a part without waiting for it. Raises :class:`UpError`."""
        run = self._running[part.name] = _Running(part)
        self._launch(run)

    def wait_ready(self, part: Part, timeout_seconds: float) -> None:
        """Wait for a launched part, watching over all.

        Raises :class:`StartError` for this part, or another that has never been ready and cannot
        start; :class:`StopWanted`.
        """
        give_up_at = time.monotonic() + timeout_seconds
        run = self._running[part.name]
        while run.ready_at is None:
            self.pause()
            for other in self._running.values():
                if not other.has_been_ready and other.deaths >= _START_ATTEMPTS:
                    raise StartError(other.part.explain_failure())
            if time.monotonic() > give_up_at:
                raise StartError(
                    f"{part.name} was not ready after {timeout_seconds:.0f} s (log: {part.log_path})."
                )

    def pause(self) -> None:
        """Let a moment pass, watching over all. Raises :class:`StopWanted`."""
        if self.stop_requests():
            raise StopWanted
        self.tick()
        time.sleep(POLL_SECONDS)

    def watch(self) -> None:
        """Keep everything running until a stop is asked for."""
        try:
            while True:
                self.pause()
        except StopWanted:
            return

    def tick(self) -> None:
        """Look at every part once: note who died, restart who is due, note who is ready."""
        now = time.monotonic()
        for run in self._running.values():
            if run.process is not None:
                code = run.process.find_exit_code()
                if code is not None:
                    self._note_death(run, code, now)
                elif run.ready_at is None and run.part.is_ready():
                    self._note_ready(run, now)
            elif now >= run.restart_at:
                try:
                    self._launch(run)
                except (UpError, OSError) as error:
                    _LOG.warning("%s: %s", run.part.name, error)
                    self._note_failure(run, str(error), now)

    def stop(self, order: Sequence[Part]) -> None:
        """Stop the parts one after the other; each drains within its own grace.

        A further stop request cuts the drains short: the part in hand is killed, the databases
        still stop cleanly unless a third one comes.
        """
        asked_before = self.stop_requests()
        for part in order:
            run = self._running.get(part.name)
            if run is None:
                continue
            if run.process is not None:
                self._end(run.process, part, asked_before)
                run.process = None
            del self._running[part.name]
            self.on_change()

    def _end(self, process: LeashedProcess, part: Part, asked_before: int) -> None:
        with self.progress.step(f"stop {part.name}"):
            process.ask_to_stop()
            kill_at = time.monotonic() + process.spec.grace_seconds + _KILL_WAIT_SECONDS
            is_killed = False
            while process.find_exit_code() is None:
                patience = 0 if part.name not in _KEEPERS else 1
                is_hurried = self.stop_requests() - asked_before > patience
                if not is_killed and (is_hurried or time.monotonic() > kill_at):
                    process.kill()
                    is_killed = True
                time.sleep(POLL_SECONDS)

    def _launch(self, run: _Running) -> None:
        run.process = run.part.launch()
        run.ready_at = None
        self.on_change()

    def _note_ready(self, run: _Running, now: float) -> None:
        run.ready_at = now
        if run.has_been_ready:
            self.progress.tell(f"{run.part.name} is back.")
        run.has_been_ready = True

    def _note_death(self, run: _Running, code: int, now: float) -> None:
        how = f"was killed by signal {code - 128}" if code > 128 else f"ended with code {code}"
        if run.ready_at is not None and now - run.ready_at > STEADY_SECONDS:
            run.deaths = 0
        run.process = None
        run.ready_at = None
        self._note_failure(run, how, now)
        self.on_change()

    def _note_failure(self, run: _Running, how: str, now: float) -> None:
        wait = BACKOFF_SECONDS[min(run.deaths, len(BACKOFF_SECONDS) - 1)]
        run.deaths += 1
        run.restart_at = now + wait
        name, log = run.part.name, run.part.log_path
        if run.deaths == LOOP_DEATHS:
            self.progress.warn(
                f"{name} has failed {run.deaths} times in a row ({how}); its log, {log}, says why."
                f" Trying again every {BACKOFF_SECONDS[-1]:.0f} s at the longest."
            )
        elif run.deaths < LOOP_DEATHS and run.has_been_ready:
            self.progress.warn(f"{name} {how}; restarting it (log: {log}).")
