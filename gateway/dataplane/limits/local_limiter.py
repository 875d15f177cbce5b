"""The limiter of one process: every counter in memory, every decision one synchronous call.

It is also the book that :class:`RedisLimiter` keeps of its own part, and by which it decides while
Redis is away; ``share`` is for that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from gateway.dataplane.limits import explain
from gateway.dataplane.limits.counters import Counters
from gateway.dataplane.limits.hold_time import WEIGHT
from gateway.dataplane.limits.left_charges import LeftCharges
from gateway.dataplane.limits.resolved_plan import OUTPUT, TOTAL, Held, ResolvedPlan, Tightest
from gateway.dataplane.limits.types import Outcome
from gateway.dataplane.limits.unposted import Unposted

if TYPE_CHECKING:
    from billing.budgets.spend_feed import SpendFeed
    from gateway.dataplane.limits.budget_state import WindowState
    from gateway.dataplane.limits.left_charges import LeftJournal
    from gateway.dataplane.limits.types import Claim, LimitPlan
    from gateway.snapshot.model import Budget, Snapshot


def monotonic_us() -> int:
    """Return the monotonic clock in microseconds."""
    return time.monotonic_ns() // 1000


def wall_us() -> int:
    """Return microseconds since the epoch."""
    return time.time_ns() // 1000


def _find_warnings(windows: tuple[WindowState, ...], hold: int) -> tuple[Budget, ...] | None:
    """Return the soft budgets that are used up; None if a hard one has no room for ``hold``."""
    warnings: tuple[Budget, ...] = ()
    for window in windows:
        used, amount = window.used, window.amount
        if not window.is_hard:
            if used >= amount:
                warnings += (window.owner.budget,)
        elif (
            used >= amount
            or used + hold > amount
            or (window.allowance is not None and not window.has_room(hold))
        ):
            return None
    return warnings


class LocalLimiter:
    """Decides for this process alone; see :class:`gateway.dataplane.limits.types.Limiter`.

    ``journal_id`` names the journal of the points that settlements are given. The monotonic clock
    leaks the buckets; the wall clock only says how long a budget's window still lasts. What is not
    known of a budget is 0, so a process takes a SpendFeed before it admits its first request.
    """

    def __init__(
        self,
        journal_id: str,
        *,
        share: float = 1.0,
        monotonic_us: Callable[[], int] = monotonic_us,
        wall_us: Callable[[], int] = wall_us,
    ) -> None:
        self.counters = Counters(share=share, monotonic_us=monotonic_us, wall_us=wall_us)
        self._monotonic_us = monotonic_us
        self._wall_us = wall_us
        self._journal_id = journal_id
        self._unposted = Unposted()
        self._left = LeftCharges()

    def admit(self, claim: Claim) -> Outcome:
        """Decide on a claim, all or nothing."""
        counters = self.counters
        plan = counters.plans.get(claim.plan) or counters.resolve(claim.plan)
        now_us = self._monotonic_us()
        input_tokens, output_tokens = claim.input_tokens, claim.output_tokens
        costs = (1, input_tokens, output_tokens, input_tokens + output_tokens)
        levels: list[float] = []
        requests = tokens = None
        requests_room = tokens_room = math.inf
        buckets = plan.buckets
        for bucket in buckets:  # as TokenBucket.level_at and plan.take, without a call
            metric, amount, level = bucket.metric, bucket.amount, bucket.level
            cost = costs[metric]
            elapsed_us = now_us - bucket.at_us
            if elapsed_us > 0:
                level -= elapsed_us * amount / bucket.period_us
                if level < 0.0:  # noqa: PLR1730  (max() is a call)
                    level = 0.0
            after = level + cost
            if after > bucket.room and not bucket.has_room(level, cost):
                return self._refuse(claim, plan, now_us)
            levels.append(after)
            room = amount - after
            if metric:
                if room < tokens_room:
                    tokens, tokens_room = bucket, room
            elif room < requests_room:
                requests, requests_room = bucket, room
        for lease in plan.leases:
            if lease.count >= lease.amount:
                return self._refuse(claim, plan, now_us)
        windows = plan.find_windows(claim.started_at_us) if plan.budgets else ()
        warnings = _find_warnings(windows, claim.hold_nano) if windows else ()
        if warnings is None:
            return self._refuse(claim, plan, now_us)
        self._hold(claim, plan, windows, now_us)
        for bucket, level in zip(buckets, levels):  # noqa: B905  (made together; costs time)
            bucket.level = level
            bucket.at_us = now_us
        return explain.admitted((requests, tokens), warnings)

    def take(
        self,
        claim: Claim,
        plan: ResolvedPlan,
        windows: tuple[WindowState, ...],
        *,
        levels: Sequence[float],
        now_us: int,
    ) -> Tightest:
        """Count a claim that was admitted; ``levels`` are those after it."""
        self._hold(claim, plan, windows, now_us)
        return plan.take(levels, now_us)

    @staticmethod
    def _hold(
        claim: Claim, plan: ResolvedPlan, windows: tuple[WindowState, ...], now_us: int
    ) -> None:
        for lease in plan.leases:
            lease.count += 1
        hold = claim.hold_nano
        for window in windows:
            window.held += hold
            window.used += hold
            window.taken += hold
        claim.state = (plan, windows, now_us)

    def _refuse(self, claim: Claim, plan: ResolvedPlan, now_us: int) -> Outcome:
        for bucket in plan.buckets:
            # A clock that stepped back: waiting is counted from now on, not from a later moment.
            bucket.at_us = min(bucket.at_us, now_us)
        windows = plan.find_windows(claim.started_at_us)
        outcome = explain.refused(
            claim,
            plan,
            windows,
            held=[window.held for window in windows],
            levels=[bucket.level_at(now_us) for bucket in plan.buckets],
            counts=[lease.count for lease in plan.leases],
            wall_us=self._wall_us(),
        )
        assert outcome is not None  # noqa: S101  (something struck, or this was not called)
        return outcome

    def peek(self, plan: LimitPlan) -> Outcome:
        """Return how a plan stands, consuming nothing."""
        resolved = self.counters.resolve(plan)
        now_us = self._monotonic_us()
        requests, tokens = explain.standings(
            resolved, [bucket.level_at(now_us) for bucket in resolved.buckets]
        )
        windows = resolved.find_windows(self._wall_us())
        return Outcome(None, requests, tokens, explain.used_up(windows))

    def top_up(self, claim: Claim, *, output_tokens: int, hold_nano: int) -> Budget | None:
        """Reserve more for a running request; return the hard budget without room for it."""
        if claim.state is None:
            return None
        windows = cast("Held", claim.state)[1]
        for window in windows:
            if window.is_hard and not window.has_room_for_more(hold_nano):
                return window.owner.budget
        self.take_more(claim, output_tokens=output_tokens, hold_nano=hold_nano)
        return None

    def take_more(self, claim: Claim, *, output_tokens: int, hold_nano: int) -> None:
        """Count what a running request has been given on top."""
        plan, windows, _ = cast("Held", claim.state)
        now_us = self._monotonic_us()
        if output_tokens:
            for bucket in plan.token_buckets:
                if bucket.metric in (OUTPUT, TOTAL):
                    bucket.add(output_tokens, now_us)
        for window in windows:
            window.take(hold_nano)
        claim.output_tokens += output_tokens
        claim.hold_nano += hold_nano

    def settle(
        self,
        claim: Claim,
        *,
        input_tokens: int,
        output_tokens: int,
        charge_nano: int,
        journal_point: tuple[int, int],
    ) -> None:
        """Put real counts in the place of reserved ones, give back the hold and the lease."""
        if claim.state is None:
            return
        plan, windows, admitted_at_us = cast("Held", claim.state)
        claim.state = None
        more_input = input_tokens - claim.input_tokens
        more_output = output_tokens - claim.output_tokens
        now_us = self._monotonic_us()
        if more_input or more_output:
            corrections = (0, more_input, more_output, more_input + more_output)
            for bucket in plan.token_buckets:
                correction = corrections[bucket.metric]
                if correction:
                    level = bucket.level  # as in admit
                    elapsed_us = now_us - bucket.at_us
                    if elapsed_us > 0:
                        level -= elapsed_us * bucket.amount / bucket.period_us
                        if level < 0.0:  # noqa: PLR1730  (max() is a call)
                            level = 0.0
                    level += correction
                    bucket.level = level if level > 0.0 else 0.0
                    bucket.at_us = now_us
        for lease in plan.leases:
            lease.end(now_us - admitted_at_us)
        if windows:
            hold = claim.hold_nano
            more = charge_nano - hold
            for window in windows:
                window.held -= hold
                window.used += more
                window.taken += more
            # One of them learns how long it was: as often as any other, and at a third of the cost.
            budget = windows[now_us % len(windows)].owner
            budget.mean_hold_ms += ((now_us - admitted_at_us) / 1000 - budget.mean_hold_ms) * WEIGHT
            if charge_nano:
                self._unposted.add(journal_point, charge_nano, windows, now_us)

    def undo(self, claim: Claim) -> None:
        """Take an admission back whole, the request's own count too: nobody waited for it."""
        if claim.state is None:
            return
        now_us = self._monotonic_us()
        for bucket in cast("Held", claim.state)[0].buckets:
            if not bucket.metric:
                bucket.add(-1, now_us)
        self.settle(claim, input_tokens=0, output_tokens=0, charge_nano=0, journal_point=(0, 0))

    def use_snapshot(self, snapshot: Snapshot) -> None:
        """Take changed amounts; what was used stays used. States of ids that are gone go too."""
        self.counters.use_snapshot(snapshot)

    def find_posted(self) -> tuple[int, int] | None:
        """Return up to where the ledger has this process's journal; None: nobody has said."""
        feed = self.counters.feed
        return None if feed is None else feed.positions.get(self._journal_id)

    def count_left(self, left: LeftJournal) -> None:
        """Count what a journal holds that no budget here has heard of, until a feed covers it."""
        self._left.add(left, self.counters)

    def use_feed(self, feed: SpendFeed) -> None:
        """Take what the ledger knows; settlements that it covers are dropped."""
        self.take_feed(feed)

    def take_feed(self, feed: SpendFeed) -> set[WindowState] | None:
        """Do so; return the windows with less unposted than before, None if the feed was not new."""
        if self.counters.feed is not None and feed.version <= self.counters.feed.version:
            return None
        position = feed.positions.get(self._journal_id)
        covered: set[WindowState] = set()
        if position is not None:
            for window, charge_nano in self._unposted.take_covered(position):
                covered.add(window)
                window.used -= charge_nano
        for window, charge_nano in self._left.take_covered(feed):
            covered.add(window)
            window.used -= charge_nano
        self.counters.use_feed(feed)
        return covered

    async def close(self) -> None:
        """Do nothing: there is no connection."""
