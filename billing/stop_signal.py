"""A request to stop that is safe to make from a signal handler and wakes whoever waits."""

from __future__ import annotations

import os
import select
import signal
import time
from types import FrameType


class StopSignal:
    """Set once, by SIGTERM, SIGINT or :meth:`set`; :meth:`wait` returns early then.

    Not a :class:`threading.Event`: its lock may be held by the very code that a handler interrupts.
    """

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._set_at: float | None = None

    @property
    def is_set(self) -> bool:
        """Whether a stop was asked for."""
        return self._set_at is not None

    @property
    def since_seconds(self) -> float:
        """How long ago the stop was asked for; 0 if it was not."""
        return 0.0 if self._set_at is None else time.monotonic() - self._set_at

    def set(self) -> None:
        """Ask for a stop; again does nothing."""
        if self._set_at is None:
            self._set_at = time.monotonic()
            os.write(self._write_end, b"\0")

    def wait(self, seconds: float) -> None:
        """Sleep for ``seconds``, or less if a stop is asked for meanwhile."""
        if self.is_set:
            time.sleep(min(seconds, 0.05))  # stopping still waits a little between two tries
            return
        select.select([self._read_end], [], [], seconds)

    def install(self) -> None:
        """Let SIGTERM and SIGINT of this process ask for the stop (main thread only)."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.set()
