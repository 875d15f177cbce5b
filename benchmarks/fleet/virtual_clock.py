"""Time that passes only from one event to the next."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class VirtualClock:
    """Events in the order of their times; equal times in the order in which they were set."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._set = 0

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        """Let ``call`` happen at ``when``, which is not in the past."""
        self._set += 1
        heapq.heappush(self._events, (when, self._set, call))

    def run(self) -> None:
        """Go on until nothing is left to happen."""
        while self._events:
            self.now, _, call = heapq.heappop(self._events)
            call()
