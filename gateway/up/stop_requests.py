"""Count the requests to stop: Ctrl-C, SIGTERM, a closed terminal."""

from __future__ import annotations

import signal
from types import FrameType


class StopRequests:
    """How often a stop was asked for; the second one asks for haste."""

    def __init__(self) -> None:
        self._count = 0

    def install(self) -> None:
        """Take the signals over. From the main thread only."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._note)

    def __call__(self) -> int:
        """Return the count so far."""
        return self._count

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._count += 1
