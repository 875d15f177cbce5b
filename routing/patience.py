"""How long an engine may be quiet before it counts as frozen. Pure: times are handed in, in seconds."""

from __future__ import annotations

from math import pow  # noqa: A004 - of floats, which is a float

_SLOWEST_FACTOR = 2.0  # of the slowest answer of late: nothing says that the next is not slower
_HALF_LIFE_SECONDS = 60.0


class Patience:
    """The patience with one engine: it grows with how long that has been quiet before, and was well.

    One that has always answered at once gets the least. One whose machine has more to do than it can
    gets more before anybody calls it broken, up to a bound: who waits for it waits no longer than that.
    """

    __slots__ = ("_at", "_half_life_seconds", "_least_seconds", "_most_seconds", "_slowest_seconds")

    def __init__(
        self,
        least_seconds: float,
        most_seconds: float,
        *,
        half_life_seconds: float = _HALF_LIFE_SECONDS,
    ) -> None:
        self._least_seconds = least_seconds
        self._most_seconds = most_seconds
        self._half_life_seconds = half_life_seconds  # of what it has learned
        self._slowest_seconds = 0.0  # as it was at _at: it fades
        self._at = 0.0

    def seconds(self, now: float) -> float:
        """Return how long it may be quiet."""
        wanted = self._find_slowest(now) * _SLOWEST_FACTOR
        return min(max(self._least_seconds, wanted), self._most_seconds)

    def note(self, seconds: float, now: float) -> None:
        """It was quiet for so long, or for longer, and was well."""
        self._slowest_seconds = max(seconds, self._find_slowest(now))
        self._at = now

    def _find_slowest(self, now: float) -> float:
        return self._slowest_seconds * pow(0.5, (now - self._at) / self._half_life_seconds)
