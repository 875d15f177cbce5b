"""The longest wait in a queue after which clients are still there: learned from those who were not.

A queue that is longer than its clients stay serves nobody: each is let in shortly before it leaves,
and the engines work for those who are gone. Who leaves while it waits costs nothing; who leaves
when its turn has come, and before it is answered, has cost all that was done for it. Where that is
too much of all that is done, and more than what is lost of those who did not wait (who cancel for
reasons of their own, or find the engine too slow), who would have to wait as long is refused at the
door, while it can still be told when to come back. The bound falls by a step, and grows a little with each who is
answered, as a congestion window does (Chiu and Jain, "Analysis of the Increase and Decrease
Algorithms for Congestion Avoidance", 1989): so it follows clients that change.
"""

from __future__ import annotations

import math
from collections import OrderedDict

_MOST_WASTE = 0.05  # of the time that places were held
_LIKE_AT_ONCE = 2.0  # times what is wasted on those who did not wait is no more than chance
_MEMORY = 0.95  # of what was measured before, with each that has ended
_MEMORY_AT_ONCE = 0.99
_WAIT_MEMORY = 0.8  # of what waits were and were expected to be
_MOST_WRONG = 64.0  # an expectation
_STEP_DOWN = 0.8
_GROWTH = 0.02  # in the time that it takes to see what the bound is good for
_LEAST_SECONDS = 0.05
_MOST_SECONDS = 3600.0
_FORGET_SECONDS, _FORGET_WAITS = 60.0, 10.0  # the longer one
_MOST_KEPT = 1024


class Share:
    """Of the time that places were held lately: how much by those who left unanswered."""

    __slots__ = ("_answered", "_left", "_memory")

    def __init__(self, memory: float) -> None:
        """``memory``: what is left of all before with each that is counted."""
        self._memory = memory
        self._left = self._answered = 0.0

    def count(self, held: float, *, is_answered: bool) -> None:
        """Count one that held its place for so long."""
        self._left *= self._memory
        self._answered *= self._memory
        if is_answered:
            self._answered += held
        else:
            self._left += held

    @property
    def value(self) -> float:
        """From 0 to 1; 0 where nothing was counted."""
        return self._left / (self._left + self._answered) if self._left else 0.0


class WaitBound:
    """Of one organization's requests in one class of a queue. All times are in seconds."""

    __slots__ = (
        "_bounded_at",
        "_expected",
        "_limit",
        "_seen_at",
        "_waited",
        "_waste",
        "_waste_at_once",
    )

    def __init__(self) -> None:
        self._limit = math.inf
        self._seen_at = self._bounded_at = -math.inf
        self._expected = self._waited = 0.0
        self._waste = Share(_MEMORY)
        self._waste_at_once = Share(_MEMORY_AT_ONCE)  # of those who did not wait

    @property
    def is_bounded(self) -> bool:
        """Whether a wait may be too long."""
        return self._limit < math.inf

    def note_at_once(self, *, held: float, is_answered: bool) -> None:
        """Count one that did not wait: what left all the same, did so for another reason."""
        self._waste_at_once.count(held, is_answered=is_answered)

    def note_wait(self, expected: float, waited: float) -> None:
        """Count one whose turn came after ``waited``, when ``expected`` had been said."""
        self._expected = self._expected * _WAIT_MEMORY + expected
        self._waited = self._waited * _WAIT_MEMORY + waited

    def note_left(self, *, waited: float, held: float, now: float) -> None:
        """Count one that waited, and left ``held`` after its turn had come, unanswered."""
        if waited < _LEAST_SECONDS:
            self.note_at_once(held=held, is_answered=False)
            return
        self._see(now)
        self._waste.count(held, is_answered=False)
        if self._is_waste_high() and now - held - waited >= self._bounded_at:
            # Those who came before the last step say nothing of what it was good for.
            self._limit = max(min(self._limit, waited) * _STEP_DOWN, _LEAST_SECONDS)
            self._bounded_at = now

    def note_answered(self, *, held: float, now: float) -> None:
        """Count one that waited and was there for its answer; its place is free after ``held``."""
        before = self._seen_at
        self._see(now)
        self._waste.count(held, is_answered=True)
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
        return wait <= self._limit or self._is_forgotten(now)

    def _is_waste_high(self) -> bool:
        return self._waste.value > _MOST_WASTE + _LIKE_AT_ONCE * self._waste_at_once.value

    def _is_forgotten(self, now: float) -> bool:
        limit = self._limit if self.is_bounded else 0.0
        return now - self._seen_at > max(_FORGET_SECONDS, _FORGET_WAITS * limit)

    def _see(self, now: float) -> None:
        if self._is_forgotten(now):
            self._limit, self._bounded_at = math.inf, -math.inf
            self._expected = self._waited = 0.0
            self._waste = Share(_MEMORY)
        self._seen_at = now


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
