"""Spares a replica that fails: closed, open, then one request at a time tries it. Pure.

What is told here is the engine's doing only. A client's own mistake, its hanging up and its own
short timeout say nothing of the engine: such an attempt is let go, neither success nor failure. An
engine that answers 429 or 503 with a Retry-After is busy, not broken: it cools down, which opens
nothing and heals nothing.
"""

from __future__ import annotations

from enum import StrEnum

from routing.policies import BreakerLimits

WINDOW_SECONDS = 10  # slides by whole seconds, so the latest 9 to 10 s count
MIN_WINDOW_REQUESTS = 10  # fewer are too few for a share
MAX_OPEN_FACTOR = 16
MAX_COOL_DOWN_SECONDS = 60.0  # an engine that says more is asked again then
_NEVER = float("-inf")


class BreakerState(StrEnum):
    """Whether requests go through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """The breaker of one replica; times are seconds of any one clock that never goes back.

    An attempt takes a ticket when it begins and says how it ended with it. Attempts from before
    the latest change of state are history: what they say later is not counted.
    """

    __slots__ = (
        "_bad",
        "_epoch",
        "_failures_in_a_row",
        "_good",
        "_limits",
        "_open_factor",
        "_since",
        "_trial",
        "_window_at",
        "cooling_until",
        "open_until",
    )

    def __init__(self, limits: BreakerLimits) -> None:
        self._limits = limits
        self.open_until: float | None = None  # when one may try it; None: closed
        self.cooling_until = _NEVER
        self._open_factor = 1
        self._trial: int | None = None  # ticket of the one that tries it now
        self._epoch = 0  # the next ticket
        self._since = 0  # lower tickets are from before the latest change
        self._failures_in_a_row = 0
        self._good = [0] * WINDOW_SECONDS  # by second, as a ring
        self._bad = [0] * WINDOW_SECONDS
        self._window_at = 0  # the second that the ring has reached

    def set_limits(self, limits: BreakerLimits) -> None:
        """Follow a new policy from the next failure on."""
        self._limits = limits

    def state_at(self, now: float) -> BreakerState:
        """Tell how it stands, whether or not the engine cools down."""
        if self.open_until is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self.open_until else BreakerState.HALF_OPEN

    def is_allowing(self, now: float) -> bool:
        """Whether a request may go there: closed, or half-open with nobody trying it yet."""
        if now < self.cooling_until:
            return False
        return self.open_until is None or (now >= self.open_until and self._trial is None)

    def begin(self, now: float) -> int:
        """Return the ticket of an attempt that begins, allowed or as a last resort.

        In the half-open state the first one is the trial.
        """
        if self.open_until is None or self._trial is not None or now < self.open_until:
            return self._epoch
        self._trial = self._epoch + 1
        self._epoch += 2  # nobody else has the trial's ticket, before or after it
        return self._trial

    def succeed(self, ticket: int, now: float) -> None:
        """The engine did what it should; while open, this closes it."""
        if ticket < self._since:
            return
        if self.open_until is not None:
            self.open_until = None
            self._open_factor = 1
            self._start_anew()
        self._failures_in_a_row = 0
        if now >= self._window_at + 1:
            self._reach(now)
        self._good[self._window_at % WINDOW_SECONDS] += 1

    def fail(self, ticket: int, now: float) -> None:
        """The engine failed. A failed trial opens for twice as long; a last resort changes nothing."""
        if ticket < self._since:
            return
        if self.open_until is not None:
            if ticket == self._trial:
                self._open_factor = min(self._open_factor * 2, MAX_OPEN_FACTOR)
                self._open(now)
            return
        self._failures_in_a_row += 1
        self._reach(now)
        self._bad[self._window_at % WINDOW_SECONDS] += 1
        if self._is_too_much():
            self._open(now)

    def let_go(self, ticket: int) -> None:
        """The attempt ended and says nothing of the engine; another may be the trial."""
        if ticket == self._trial:
            self._trial = None

    def cool_down(self, seconds: float, now: float) -> None:
        """Nothing new for so long, as the engine asks; at most :data:`MAX_COOL_DOWN_SECONDS`."""
        until = now + min(seconds, MAX_COOL_DOWN_SECONDS)
        self.cooling_until = max(self.cooling_until, until)

    def trip(self, now: float) -> None:
        """Open, whatever its counts: somebody knows better. Nothing changes while it is open."""
        if self.open_until is None:
            self._open(now)

    def _is_too_much(self) -> bool:
        limits = self._limits
        if 0 < limits.failures <= self._failures_in_a_row:
            return True
        bad = sum(self._bad)
        total = bad + sum(self._good)
        return total >= MIN_WINDOW_REQUESTS and bad >= limits.failure_share * total

    def _open(self, now: float) -> None:
        self.open_until = now + self._limits.open_seconds * self._open_factor
        self._start_anew()

    def _start_anew(self) -> None:
        self._trial = None
        self._epoch += 1
        self._since = self._epoch
        self._failures_in_a_row = 0
        self._good = [0] * WINDOW_SECONDS
        self._bad = [0] * WINDOW_SECONDS

    def _reach(self, now: float) -> None:
        """Turn the ring to the present second, emptying what is too old."""
        second = int(now)
        passed = second - self._window_at
        if passed > 0:
            for step in range(1, min(passed, WINDOW_SECONDS) + 1):
                place = (self._window_at + step) % WINDOW_SECONDS
                self._good[place] = self._bad[place] = 0
            self._window_at = second
