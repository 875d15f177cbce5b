"""How an attempt ended, as far as the replica's health is concerned."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """What the end of an attempt says of the engine."""

    ANSWERED = "answered"  # it did its work; a 4xx of the client's own making is none of these
    FAILED = "failed"  # no connection, 5xx, a cut stream, silence, garbage
    BUSY = "busy"  # 429, or 503 with a Retry-After: not broken, and not healed either
    NOTHING = "nothing"  # the client's own 4xx, or it left: says nothing of the engine
