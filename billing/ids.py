"""Prefixed, time-ordered ids: ``req_019ad3c1f0b2…``, 48 bits of milliseconds and 80 random bits.

Written as 32 lower-case hexadecimal digits, so that they sort by time as text, need no quoting in a
URL, and tell their age (:func:`id_time_ms`).
"""

from __future__ import annotations

import secrets
import time

ID_DIGITS = 32
_RANDOM_BITS = 80


def new_id(prefix: str) -> str:
    """Return a fresh id ``<prefix>_<32 hex digits>``."""
    milliseconds = time.time_ns() // 1_000_000
    return f"{prefix}_{milliseconds:012x}{secrets.randbits(_RANDOM_BITS):020x}"


def id_time_ms(value: str) -> int | None:
    """Return the milliseconds since the epoch at which ``value`` was made.

    None when ``value`` is not one of our ids.
    """
    _, separator, digits = value.rpartition("_")
    if not separator or len(digits) != ID_DIGITS:
        return None
    try:
        return int(digits, 16) >> _RANDOM_BITS
    except ValueError:
        return None
