"""How late the client's event loop runs, and what CPU it takes."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable

from backends.sweep.percentiles import quantile
from backends.sweep.saturation import ClientLoad

_EVERY_SECONDS = 0.01


class ClientWatch:
    """Sets a timer again and again and notes how late each is."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._late: array[float] = array("d")
        self._due_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._begin()

    def start(self) -> None:
        """Begin to watch."""
        self._due_at = self._clock() + _EVERY_SECONDS
        self._timer = self._loop.call_later(_EVERY_SECONDS, self._note)

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()

    def reset(self) -> None:
        """Forget what was; a window begins."""
        self._late = array("d")
        self._begin()

    def read(self) -> ClientLoad:
        """Return how busy the client was since the last reset."""
        late = sorted(self._late) or [0.0]
        passed = max(self._clock() - self._began_at, 1e-9)
        return ClientLoad(
            quantile(late, 0.95) * 1000,
            quantile(late, 0.99) * 1000,
            (time.process_time() - self._cpu_seconds) / passed,
        )

    def _begin(self) -> None:
        self._began_at = self._clock()
        self._cpu_seconds = time.process_time()

    def _note(self) -> None:
        now = self._clock()
        self._late.append(max(0.0, now - self._due_at))
        self.start()
