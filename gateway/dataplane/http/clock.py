"""The date of replies."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate

from gateway.dataplane.http.head import HeaderLines


class Clock:
    """The ``date`` line of replies (RFC 9110 section 6.6.1), made anew as each second begins."""

    __slots__ = ("_loop", "_next", "line")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._next: asyncio.TimerHandle | None = None
        self.line: HeaderLines = b""
        self._turn()

    def stop(self) -> None:
        """Let it stand."""
        if self._next is not None:
            self._next.cancel()

    def _turn(self) -> None:
        now = time.time()
        self.line = f"date: {formatdate(now, usegmt=True)}\r\n".encode()
        self._next = self._loop.call_later(1.0 - now % 1.0, self._turn)
