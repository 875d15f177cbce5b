"""A rate limit as a leaking level: the arithmetic of both limiters. Pure.

What was taken raises the level, time lowers it by ``amount`` per period, and something is admitted
when the level stays within the amount. The capacity is the amount, so within any one period at most
``2 * amount`` is admitted (a full bucket at once, and what leaks meanwhile) and ``amount`` in each
on the average; there is no boundary at which it starts anew.

Levels are IEEE doubles. ``prelude.lua`` does the same operations in the same order, so that
Python and Lua agree to the last bit. Times are microseconds; every number is below 2**53.
"""

from __future__ import annotations

import math

# What sums of doubles may be off: a level within it of the amount still counts as within.
TOLERANCE = 1e-9


class TokenBucket:
    """The level of one limit, and when it was that."""

    __slots__ = (
        "__weakref__",
        "amount",
        "aside",  # of the room, what is set aside for claims to come
        "at_us",
        "level",
        "next_level",  # of the decision that is being made
        "period_us",
        "room",
        "whole",
    )

    def __init__(self, amount: int, period_us: int, *, at_us: int, share: float = 1.0) -> None:
        self.level = self.next_level = 0.0
        self.aside = 0
        self.at_us = at_us
        self.change(amount, period_us, share=share)

    def change(self, amount: int, period_us: int, *, share: float = 1.0) -> None:
        """Take another amount; the level stays what it is.

        With a ``share`` below 1 the bucket leaks and fills to that part of the amount. Something
        larger than the share, but not than the amount, is admitted when the bucket is empty.
        """
        self.whole = amount
        self.amount = amount * share
        self.period_us = float(period_us)
        self.set_aside(0)

    def set_aside(self, cost: int) -> None:
        """Let nobody have ``cost`` of the room; a negative one gives it back."""
        self.aside += cost
        # An amount of 0 lets nothing through, not even what costs nothing.
        room = self.amount * (1.0 + TOLERANCE) if self.whole > 0 else -1.0
        self.room = room - self.aside

    def level_at(self, now_us: int) -> float:
        """Return the level at ``now_us``; a clock that stepped back drains nothing."""
        level = self.sunk_level_at(now_us)
        return level if level > 0.0 else 0.0

    def sunk_level_at(self, now_us: int) -> float:
        """Return the level as if it could fall below 0: how much may come without having been felt."""
        elapsed_us = now_us - self.at_us
        if elapsed_us <= 0:
            return self.level
        return self.level - elapsed_us * self.amount / self.period_us

    def has_room(self, level: float, cost: int) -> bool:
        """Tell whether ``cost`` is admitted at ``level``."""
        if level + cost <= self.room:
            return True
        return self.amount < cost <= self.whole and level <= self.room - self.amount

    def add(self, cost: int, now_us: int) -> None:
        """Raise the level, or lower it by a negative cost, never below 0."""
        level = self.level_at(now_us) + cost
        self.level = level if level > 0.0 else 0.0
        self.at_us = now_us

    def find_wait_ms(self, level: float, cost: int) -> int | None:
        """Return after how long ``cost`` is admitted if nobody else comes; None: never."""
        if self.whole <= 0 or cost > self.whole:
            return None
        if self.has_room(level, cost):
            return 0
        excess = level + cost - self.amount if cost <= self.amount else level
        return math.ceil(excess * self.period_us / self.amount / 1000.0)

    def reset_ms(self, level: float) -> int:
        """Return after how long the bucket is empty if nobody comes."""
        if self.amount <= 0.0:
            return 0
        return math.ceil(level * self.period_us / self.amount / 1000.0)
