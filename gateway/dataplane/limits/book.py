"""The book that :class:`RedisLimiter` keeps of its own part, and by which it decides while Redis is away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.dataplane.limits.local_limiter import LocalLimiter

if TYPE_CHECKING:
    from billing.budgets.spend_feed import SpendFeed
    from gateway.dataplane.limits.budget_state import WindowState
    from gateway.dataplane.limits.resolved_plan import ResolvedPlan, Tightest
    from gateway.dataplane.limits.types import Claim
    from gateway.snapshot.model import Snapshot


class Book(LocalLimiter):
    """Counts what was decided elsewhere.

    ``heard`` is another number whenever Redis, the ledger or a Snapshot has said something new, or sums
    of settlements were written: less may be free than before.
    """

    heard = 0

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
        self.heard += 1
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
        self.heard += 1
        now_us = self._monotonic_us()
        plan.correct(*more, now_us)
        for window in windows:
            window.take(-hold, charge)
        if windows:
            windows[now_us % len(windows)].owner.learn_hold(now_us - admitted_at_us, number)
        if windows and charge:
            self._unposted.add(journal_point, charge, windows, now_us)

    def take_more(self, claim: Claim, *, output_tokens: int, hold_nano: int) -> None:
        """Count what a running request has been given on top."""
        self.heard += 1
        super().take_more(claim, output_tokens=output_tokens, hold_nano=hold_nano)

    def use_snapshot(self, snapshot: Snapshot) -> None:
        """Take changed amounts, as :meth:`LocalLimiter.use_snapshot`."""
        self.heard += 1
        super().use_snapshot(snapshot)

    def take_feed(self, feed: SpendFeed) -> set[WindowState] | None:
        """Take what the ledger knows, as :meth:`LocalLimiter.take_feed`."""
        self.heard += 1
        return super().take_feed(feed)
