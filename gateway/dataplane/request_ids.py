"""Ids and times of arrival of requests."""

from __future__ import annotations

import secrets
import time

_LAST_DIGITS = tuple(f"{place:03x}" for place in range(0x1000))  # written once: a third of the cost


class RequestIds:
    """Makes request ids for one process: time-ordered, unique across processes.

    The form of :mod:`billing.ids`, with 48 random bits drawn once a process and a counter instead
    of a draw from the kernel for each.
    """

    __slots__ = ("_count", "_ms", "_prefix", "_process")

    def __init__(self) -> None:
        self._ms = 0
        self._prefix = ""  # all but the counter's last digits, in one millisecond
        self._process = secrets.token_hex(6)
        self._count = secrets.randbits(31)

    def next(self, now_us: int) -> str:
        """Return a new id for a request that arrived at ``now_us``."""
        count = self._count = (self._count + 1) & 0xFFFFFFFF
        place = count & 0xFFF
        now_ms = now_us // 1000
        if now_ms != self._ms or not place:
            self._ms = now_ms
            self._prefix = f"req_{now_ms:012x}{self._process}{count >> 12:05x}"
        return self._prefix + _LAST_DIGITS[place]


def arrival_us() -> int:
    """Return now, in microseconds since the epoch."""
    return time.time_ns() // 1000
