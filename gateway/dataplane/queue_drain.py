"""How fast a deployment serves what waits for it, and from that a true Retry-After."""

from __future__ import annotations

import math
from collections.abc import Collection
from itertools import islice
from typing import Protocol

from gateway.dataplane.queue_order import MIN_COST

MIN_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 3600.0
_MEMORY_SECONDS = 30.0  # after so long, what was measured counts for 1/e
# Until something was measured: what a slot serves a second, and the most that may follow from it.
_ASSUMED_PER_SECOND = 50.0
_MAX_ASSUMED_SECONDS = 30.0
# A request that has run longer than its estimate says goes on for this part of the time it has run:
# so who asks again and again is told the truth after a few answers, however long it is.
_OVERDUE_SHARE = 0.5
# Of what a running request takes: half of them take longer than the mean.
_SPARE_SHARE = 0.25
_MOST_LOOKED_AT = 32  # running requests; of more, an even part stands for all


class Running(Protocol):
    """What a running request tells of itself."""

    @property
    def cost(self) -> float:
        """Its estimated cost."""

    @property
    def entered_at(self) -> float:
        """Since when it runs, by the loop's clock."""


class SlotSpeed:
    """Cost served for each second that a slot was held, exponentially averaged."""

    __slots__ = ("_cost", "_held_seconds", "_measured_at")

    def __init__(self) -> None:
        self._cost = 0.0
        self._held_seconds = 0.0
        self._measured_at = 0.0

    def record(self, cost: float, held_seconds: float, at: float) -> None:
        """Count one that was served: what it cost, and how long it held its slot."""
        fade = math.exp(min(0.0, self._measured_at - at) / _MEMORY_SECONDS)
        self._cost = self._cost * fade + cost
        self._held_seconds = self._held_seconds * fade + held_seconds
        self._measured_at = at

    @property
    def is_measured(self) -> bool:
        """Whether one was served that held its slot for a time."""
        return self._held_seconds > 0.0

    @property
    def per_second(self) -> float:
        """What a slot serves in a second; an assumption until something was measured."""
        return self._cost / self._held_seconds if self.is_measured else _ASSUMED_PER_SECOND


class DrainRate:
    """How fast estimated cost is served.

    Times the number of slots that is the drain while all are taken, whether or not they were when
    it was measured. Estimates are compared with estimates: what waits is estimated in the same way,
    so an error that all have in common does not matter.
    """

    __slots__ = ("_speed",)

    def __init__(self) -> None:
        self._speed = SlotSpeed()

    def record(self, cost: float, held_seconds: float, at: float) -> None:
        """Count one that was served, by its estimated cost."""
        self._speed.record(cost, held_seconds, at)

    def retry_after_seconds(
        self, ahead: float, running: Collection[Running], *, slots: int, now: float
    ) -> float:
        """Return when a slot is free, if the cost ``ahead`` of what waits is served before.

        ``slots`` run at a time; more may run, since their number was lowered. At least a second, at
        most an hour.
        """
        speed = self._speed.per_second
        step = max(1, -(-len(running) // _MOST_LOOKED_AT))
        lefts: list[float] = []
        taken = 0.0
        for one in islice(running, 0, None, step):
            takes, held = max(one.cost, MIN_COST) / speed, max(0.0, now - one.entered_at)
            lefts.append(takes - held if held < takes else held * _OVERDUE_SHARE)
            taken += max(takes, held)
        work = ahead / speed / step
        if lefts:
            work += _SPARE_SHARE * taken / len(lefts) / step
        lefts.sort()
        free = slots - len(running)
        if free < 0:  # those that end first leave no slot behind
            lefts = lefts[min(-free // step, len(lefts) - 1) :]
        lefts[:0] = [0.0] * -(-free // step)
        seconds = _fill_up(lefts, work)
        if not self._speed.is_measured:
            seconds = min(seconds, _MAX_ASSUMED_SECONDS)
        return min(max(seconds, MIN_RETRY_SECONDS), MAX_RETRY_SECONDS)


def _fill_up(lefts: list[float], work: float) -> float:
    """Return when the slots that are free after ``lefts`` seconds, in order, have done ``work``.

    Like water that is poured into a vessel with steps: the next slot takes part once it is free.
    """
    level, under = 0.0, 0.0
    for count, left in enumerate(lefts, 1):
        if count > 1 and level <= left:
            break
        under += left
        level = (under + work) / count
    return level
