"""Runs the steps of a batch in real time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from backends.simulated.batch import Batch, Sequence

# A step that ends late (the machine is busy) is caught up with by later ones, up to so much.
_MAX_LAG_SECONDS = 0.25


def _as_fast_as_it_is() -> float:
    return 1.0


class StepClock:
    """Ends each step of a batch when its time is over, and begins the next.

    ``slowness``: asked at each step how many times as long it takes.
    """

    def __init__(
        self,
        batch: Batch,
        loop: asyncio.AbstractEventLoop,
        slowness: Callable[[], float] = _as_fast_as_it_is,
    ) -> None:
        self.batch = batch
        self._loop = loop
        self._slowness = slowness
        self._is_paused = False
        self._ends_at = 0.0  # of the present step, in the loop's time
        self._timer: asyncio.TimerHandle | None = None  # None: idle

    def submit(self, sequence: Sequence) -> None:
        """Add a sequence; when idle, a step begins at once. Raises ``ValueError``: too large."""
        self.batch.add(sequence)
        self._wake()

    def pause(self) -> None:
        """Take no further step until :meth:`resume`; sequences may still be added."""
        self._is_paused = True
        self.stop()

    def resume(self) -> None:
        """Go on."""
        self._is_paused = False
        self._wake()

    def stop(self) -> None:
        """Leave the present step, and take none until another sequence comes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        if self._timer is None and not self._is_paused:
            self._ends_at = self._loop.time()
            self._begin()

    def _begin(self) -> None:
        seconds = self.batch.begin_step()
        if seconds is None:
            self._timer = None
            return
        seconds *= self._slowness()
        self._ends_at = max(self._ends_at, self._loop.time() - _MAX_LAG_SECONDS) + seconds
        self._timer = self._loop.call_at(self._ends_at, self._end)

    def _end(self) -> None:
        self.batch.end_step()
        if not self._is_paused:  # a listener may have paused it
            self._begin()
