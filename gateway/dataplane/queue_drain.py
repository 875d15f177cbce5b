"""How fast a deployment serves what waits for it, and from that a true Retry-After."""

from __future__ import annotations

import math

MIN_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 3600.0
_MEMORY_SECONDS = 30.0  # after so long, what was measured counts for 1/e


class DrainRate:
    """Estimated cost served for each second that a slot was held, exponentially averaged.

    Times the number of slots that is the drain while all are taken, whether or not they were when
    it was measured. Estimates are compared with estimates: what waits is estimated in the same way,
    so an error that all have in common does not matter.
    """

    __slots__ = ("_cost", "_held_seconds", "_measured_at")

    def __init__(self) -> None:
        self._cost = 0.0
        self._held_seconds = 0.0
        self._measured_at = 0.0

    def record(self, cost: float, held_seconds: float, at: float) -> None:
        """Count one that was served: its estimated cost, and how long it held its slot."""
        fade = math.exp(min(0.0, self._measured_at - at) / _MEMORY_SECONDS)
        self._cost = self._cost * fade + cost
        self._held_seconds = self._held_seconds * fade + held_seconds
        self._measured_at = at

    def find_per_second(self, slots: int) -> float | None:
        """Return the cost that ``slots`` serve a second; None before anything was measured."""
        if self._held_seconds <= 0.0:
            return None
        return slots * self._cost / self._held_seconds

    def retry_after_seconds(self, cost: float, slots: int) -> float:
        """Return when ``cost`` will have been served, at least a second, at most an hour.

        Before anything was measured that is one second, for want of anything better.
        """
        per_second = self.find_per_second(slots)
        if per_second is None:
            return MIN_RETRY_SECONDS
        if per_second <= 0.0:
            return MAX_RETRY_SECONDS
        return min(max(cost / per_second, MIN_RETRY_SECONDS), MAX_RETRY_SECONDS)
