"""Runs the steps of a batch in real time."""

from __future__ import annotations

import asyncio

from backends.simulated.batch import Batch, Sequence

# A step that ends late (the machine is busy) is caught up with by later ones, up to so much.
_MAX_LAG_SECONDS = 0.25


class StepClock:
    """Ends each step of a batch when its time is over, and begins the next."""

    def __init__(self, batch: Batch, loop: asyncio.AbstractEventLoop) -> None:
        self.batch = batch
        self._loop = loop
        self._ends_at = 0.0  # of the present step, in the loop's time
        self._timer: asyncio.TimerHandle | None = None  # None: idle

    def submit(self, sequence: Sequence) -> None:
        """Add a sequence; when idle, a step begins at once."""
        self.batch.add(sequence)
        if self._timer is None:
            self._ends_at = self._loop.time()
            self._begin()

    def stop(self) -> None:
        """Take no further step."""
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        seconds = self.batch.begin_step()
        if seconds is None:
            self._timer = None
            return
        self._ends_at = max(self._ends_at, self._loop.time() - _MAX_LAG_SECONDS) + seconds
        self._timer = self._loop.call_at(self._ends_at, self._end)

    def _end(self) -> None:
        self.batch.end_step()
        self._begin()
