"""How long an engine takes to serve again, by what was measured. Pure."""

from __future__ import annotations

import math
from collections import deque

# Of the latest wakes: a model that moved to another disk is forgotten soon.
KEPT = 20
# Nine wakes in ten were done by then. A mean would send half of all clients back too early.
SHARE = 0.9


class WakeTimes:
    """The latest wakes of each kind, in seconds."""

    def __init__(self) -> None:
        self._seconds: dict[str, deque[float]] = {}

    def note(self, kind: str, seconds: float) -> None:
        """Remember one wake."""
        self._seconds.setdefault(kind, deque(maxlen=KEPT)).append(seconds)

    def find(self, kind: str) -> float | None:
        """Return what nine in ten of the latest took at most; None before the first."""
        measured = sorted(self._seconds.get(kind, ()))
        if not measured:
            return None
        return measured[math.ceil(SHARE * len(measured)) - 1]

    def find_left(self, kind: str, elapsed_seconds: float) -> float | None:
        """Return what is probably left of a wake that has taken so long; None if nothing is known.

        One that takes longer than all before it is guessed to need a tenth of the usual time more.
        """
        usual = self.find(kind)
        if usual is None:
            return None
        return max(usual - elapsed_seconds, usual / 10)
