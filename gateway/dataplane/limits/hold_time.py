"""How long requests hold what they were given, learned from those that ended. Pure.

When the next of them ends is not known, so what is told to a refused client is an estimate: the mean
time, between 1 and 30 s.
"""

from __future__ import annotations

FIRST_HOLD_MS = 1_000.0  # before one has ended
WEIGHT = 0.1  # of the newest request in the mean
_LEAST_WAIT_MS, _MOST_WAIT_MS = 1_000, 30_000


def find_wait_ms(mean_hold_ms: float) -> int:
    """Return after how long to ask again for what running requests hold."""
    return int(min(max(mean_hold_ms, _LEAST_WAIT_MS), _MOST_WAIT_MS))
