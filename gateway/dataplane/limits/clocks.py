"""The two clocks of a limiter, in whole microseconds."""

from __future__ import annotations

import time


def monotonic_us() -> int:
    """Return the monotonic clock in microseconds."""
    return time.monotonic_ns() // 1000


def wall_us() -> int:
    """Return microseconds since the epoch."""
    return time.time_ns() // 1000
