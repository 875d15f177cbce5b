"""The book that :class:`RedisLimiter` keeps of its own part, and by which it decides while Redis is away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.dataplane.limits.local_limiter import LocalLimiter

if TYPE_CHECKING:
    from gateway.dataplane.limits.budget_state import WindowState
    from gateway.dataplane.limits.resolved_plan import ResolvedPlan, Tightest
    from gateway.dataplane.limits.types import Claim


class Book(LocalLimiter):
    """Counts what was decided elsewhere."""

    def take(
        self,
        claims: Sequence[Claim],
        plan: ResolvedPlan,
        windows: tuple[WindowState, ...],
        *,
        levels: Sequence[float],
        now_us: int,
    ) -> Tightest:
        """Count claims that were admitted together; ``levels`` are those after them."""
        if len(claims) == 1 or plan.leases:
            for claim in claims:
                self._hold(claim, plan, windows, now_us)
        else:
            state = (plan, windows, now_us)
            for claim in claims:
                claim.state = state
            hold = sum([claim.hold_nano for claim in claims])
            for window in windows:
                window.take(hold)
        return plan.take(levels, now_us)

    def settle_sum(
        self,
        plan: ResolvedPlan,
        windows: tuple[WindowState, ...],
        *,
        number: int,
        more: tuple[int, int],
        hold: int,
        charge: int,
        admitted_at_us: int,
        journal_point: tuple[int, int],
    ) -> None:
        """Settle ``number`` claims of a plan without leases at once, by their sums.

        ``more``: corrections of input and output tokens; ``admitted_at_us``: when, on the average;
        ``journal_point``: behind the latest of their close records.
        """
        now_us = self._monotonic_us()
        plan.correct(*more, now_us)
        for window in windows:
            window.take(-hold, charge)
        if windows:
            windows[now_us % len(windows)].owner.learn_hold(now_us - admitted_at_us, number)
        if windows and charge:
            self._unposted.add(journal_point, charge, windows, now_us)
