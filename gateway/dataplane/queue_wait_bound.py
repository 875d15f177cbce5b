"""The longest wait in a queue after which clients are still there: learned from those who were not.

A queue that is longer than its clients stay serves nobody: each is let in shortly before it leaves,
and the engines work for those who are gone. Who leaves while it waits costs nothing; who leaves
when its turn has come, and before it is answered, has cost all that was done for it. Where that is
too much of all that is done, who would have to wait as long is refused at the door, while it can
still be told when to come back. The bound falls by a step, and grows a little with each who is
answered, as a congestion window does (Chiu and Jain, "Analysis of the Increase and Decrease
Algorithms for Congestion Avoidance", 1989): so it follows clients that change.
"""

from __future__ import annotations

import math
from collections import OrderedDict

_MOST_WASTE = 0.05  # of the time that places were held
_MEMORY = 0.95  # of what was measured before, with each that has ended
_WAIT_MEMORY = 0.8  # of what waits were and were expected to be
_MOST_WRONG = 64.0  # an expectation
_STEP_DOWN = 0.8
_GROWTH = 0.02  # in the time that it takes to see what the bound is good for
_LEAST_SECONDS = 0.05
_MOST_SECONDS = 3600.0
_FORGET_SECONDS = 600.0
_MOST_KEPT = 1024


class WaitBound:
    """Of one organization's requests in one class of a queue. All times are in seconds."""

    _answered: float
    _bounded_at: float
    _expected: float
    _limit: float
    _waited: float
    _wasted: float

    __slots__ = (
        "_answered",
        "_bounded_at",
        "_expected",
        "_limit",
        "_seen_at",
        "_waited",
        "_wasted",
    )

    def __init__(self) -> None:
        self._seen_at = -math.inf
        self._forget()

    def _forget(self) -> None:
        self._limit = math.inf
        self._bounded_at = -math.inf
        self._wasted = self._answered = 0.0  # seconds in which places were held
        self._expected = self._waited = 0.0

    @property
    def is_bounded(self) -> bool:
        """Whether a wait may be too long."""
        return self._limit < math.inf

    def note_wait(self, expected: float, waited: float) -> None:
        """Count one whose turn came after ``waited``, when ``expected`` had been said."""
        self._expected = self._expected * _WAIT_MEMORY + expected
        self._waited = self._waited * _WAIT_MEMORY + waited

    def note_left(self, *, waited: float, held: float, now: float) -> None:
        """Count one that waited, and left ``held`` after its turn had come, unanswered."""
        self._count(now)
        self._wasted += held
        if self._is_waste_high() and now - held - waited >= self._bounded_at:
            # Those who came before the last step say nothing of what it was good for.
            self._limit = max(min(self._limit, waited) * _STEP_DOWN, _LEAST_SECONDS)
            self._bounded_at = now

    def note_answered(self, *, held: float, now: float) -> None:
        """Count one that waited and was there for its answer; its place is free after ``held``."""
        before = self._seen_at
        self._count(now)
        self._answered += held
        if self.is_bounded and not self._is_waste_high():
            self._limit += _GROWTH * (now - before) * self._limit / (self._limit + held)
            if self._limit > _MOST_SECONDS:
                self._limit = math.inf

    def allows(self, wait: float, now: float) -> bool:
        """Tell whether one is likely to be there for its answer, who is expected to ``wait`` so long.

        What is expected is made longer where it was too short lately, as it is while estimates of
        cost are learned. That it was too long harms nobody.
        """
        if self._expected > 0.0:
            wait *= min(max(self._waited / self._expected, 1.0), _MOST_WRONG)
        return wait <= self._limit or now - self._seen_at > _FORGET_SECONDS

    def _is_waste_high(self) -> bool:
        return self._wasted > _MOST_WASTE * (self._wasted + self._answered)

    def _count(self, now: float) -> None:
        if now - self._seen_at > _FORGET_SECONDS:
            self._forget()
        self._seen_at = now
        self._wasted *= _MEMORY
        self._answered *= _MEMORY


class WaitBounds:
    """Those of all who wait for one deployment; of the organizations that were seen last."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], WaitBound] = OrderedDict()

    def get(self, priority: str, organization_id: str) -> WaitBound:
        """Return that of an organization in a class, a new one if need be."""
        key = (priority, organization_id)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = WaitBound()
            if len(self._known) > _MOST_KEPT:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return known
