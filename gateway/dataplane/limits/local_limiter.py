"""The limiter of one process: every counter in memory, every decision one synchronous call.

It is also what :class:`RedisLimiter` keeps its own part by (``book.py``); ``share`` is for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from gateway.dataplane.limits import explain
from gateway.dataplane.limits.budget_state import find_warnings
from gateway.dataplane.limits.clocks import monotonic_us, wall_us
from gateway.dataplane.limits.counters import Counters
from gateway.dataplane.limits.hold_time import WEIGHT
from gateway.dataplane.limits.left_charges import LeftCharges
from gateway.dataplane.limits.resolved_plan import NO_ROOM, Held, ResolvedPlan, weigh
from gateway.dataplane.limits.taken_ahead import TOGETHER, AllAhead, TakenAhead, has_room_ahead
from gateway.dataplane.limits.types import OUTPUT, TOTAL, Outcome
from gateway.dataplane.limits.unposted import Unposted

if TYPE_CHECKING:
    from billing.budgets.spend_feed import SpendFeed
    from gateway.dataplane.limits.budget_state import WindowState
    from gateway.dataplane.limits.left_charges import LeftJournal
    from gateway.dataplane.limits.types import Claim, LimitPlan
    from gateway.snapshot.model import Budget, Snapshot


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
        takes_ahead: bool = False,
    ) -> None:
        """``takes_ahead``: may decide on claims of a busy plan together (``taken_ahead.py``)."""
        self.counters = Counters(share=share, monotonic_us=monotonic_us, wall_us=wall_us)
        self._monotonic_us = monotonic_us
        self._wall_us = wall_us
        self._journal_id = journal_id
        self._takes_ahead = takes_ahead
        self._unposted = Unposted()
        self._ahead = AllAhead(monotonic_us, self._unposted)
        self._left = LeftCharges()

    def admit(self, claim: Claim) -> Outcome:
        """Decide on a claim, all or nothing."""
        counters = self.counters
        plan = counters.plans.get(claim.plan) or counters.resolve(claim.plan)
        now_us = self._monotonic_us()
        if plan.ahead is not None:
            outcome = plan.ahead.admit(claim, now_us)
            if outcome is not None:
                return outcome
            self._ahead.give_back(plan, now_us)
        return self._ask_all(claim, plan, now_us)

    def _ask_all(self, claim: Claim, plan: ResolvedPlan, now_us: int) -> Outcome:
        self._ahead.give_back_over(now_us)
        input_tokens, output_tokens = claim.input_tokens, claim.output_tokens
        costs = (1, input_tokens, output_tokens, input_tokens + output_tokens)
        requests = weigh(plan.request_buckets, costs, now_us)
        tokens = weigh(plan.token_buckets, costs, now_us)
        if requests is NO_ROOM or tokens is NO_ROOM:
            return self._refuse(claim, plan, now_us)
        for lease in plan.leases:
            if lease.count >= lease.amount:
                return self._refuse(claim, plan, now_us)
        windows = plan.find_windows(claim.started_at_us) if plan.budgets else ()
        warnings = find_warnings(windows, claim.hold_nano) if windows else ()
        if warnings is None:
            return self._refuse(claim, plan, now_us)
        if warnings and self._ahead.give_all_back():  # perhaps for what was only set aside
            return self._ask_all(claim, plan, now_us)
        self._hold(claim, plan, windows, now_us)
        for bucket in plan.buckets:
            bucket.level = bucket.next_level
            bucket.at_us = now_us
        if self._ahead.plans and not all(w.is_hard and w.used < w.amount for w in windows):
            self._ahead.give_back_crowded(now_us)
        outcome = explain.admitted((requests, tokens), warnings)
        if (
            self._takes_ahead
            and plan.heat.is_busy(now_us)
            and has_room_ahead(plan, claim, windows)
            and not warnings
        ):
            ahead = TakenAhead(plan, claim, windows, outcome, tightest=tokens, now_us=now_us)
            self._ahead.begin(plan, ahead)
        return outcome

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
        if self._ahead.give_all_back():
            return self._ask_all(claim, plan, now_us)
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
        self._ahead.give_all_back()
        resolved = self.counters.resolve(plan)
        now_us = self._monotonic_us()
        levels = [bucket.level_at(now_us) for bucket in resolved.buckets]
        requests, tokens = explain.standings(resolved, levels)
        windows = resolved.find_windows(self._wall_us())
        return Outcome(None, requests, tokens, explain.used_up(windows))

    def top_up(self, claim: Claim, *, output_tokens: int, hold_nano: int) -> Budget | None:
        """Reserve more for a running request; return the hard budget without room for it."""
        if claim.state is None:
            return None
        windows = cast("Held", claim.state)[1]
        for window in windows:
            if window.is_hard and not window.has_room_for_more(hold_nano):
                if self._ahead.give_all_back():
                    return self.top_up(claim, output_tokens=output_tokens, hold_nano=hold_nano)
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
        if self._ahead.plans:
            self._ahead.give_back_crowded(now_us)

    def settle(
        self,
        claim: Claim,
        input_tokens: int,
        output_tokens: int,
        charge_nano: int,
        journal_point: tuple[int, int],
    ) -> None:
        """Put real counts in the place of reserved ones, give back the hold and the lease."""
        held: Held | None = claim.state
        if held is None:
            return
        claim.state = None
        plan, windows, admitted_at_us = held
        now_us = self._monotonic_us()
        if now_us >= self._ahead.over_at_us:
            self._ahead.give_back_over(now_us)
        ahead = plan.ahead
        if ahead is not None:
            if (
                ahead.windows is windows
                and input_tokens <= claim.input_tokens
                and output_tokens <= claim.output_tokens
                and charge_nano <= claim.hold_nano
            ):
                ahead.end(claim, now_us - admitted_at_us, input_tokens, output_tokens, charge_nano)
                if charge_nano:
                    ahead.point = journal_point
                if len(ahead.ended) >= TOGETHER:
                    ahead.count_ended(now_us)
                return
            self._ahead.give_back(plan, now_us)
        self._settle_alone(
            claim, held, now_us, input_tokens, output_tokens, charge_nano, journal_point
        )

    def _settle_alone(  # noqa: PLR0917  (by position, for names cost time here)
        self,
        claim: Claim,
        held: Held,
        now_us: int,
        input_tokens: int,
        output_tokens: int,
        charge_nano: int,
        journal_point: tuple[int, int],
    ) -> None:
        plan, windows, admitted_at_us = held
        hold = claim.hold_nano
        more_input = input_tokens - claim.input_tokens
        more_output = output_tokens - claim.output_tokens
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
        if self._ahead.plans and (more_input > 0 or more_output > 0 or charge_nano > hold):
            self._ahead.give_back_crowded(now_us)

    def undo(self, claim: Claim) -> None:
        """Take an admission back whole, the request's own count too: nobody waited for it."""
        if claim.state is None:
            return
        self._ahead.give_all_back()
        now_us = self._monotonic_us()
        for bucket in cast("Held", claim.state)[0].request_buckets:
            bucket.add(-1, now_us)
        self.settle(claim, input_tokens=0, output_tokens=0, charge_nano=0, journal_point=(0, 0))

    def use_snapshot(self, snapshot: Snapshot) -> None:
        """Take changed amounts; what was used stays used. States of ids that are gone go too."""
        self._ahead.give_all_back()
        self.counters.use_snapshot(snapshot)

    def find_posted(self) -> tuple[int, int] | None:
        """Return up to where the ledger has this process's journal; None: nobody has said."""
        feed = self.counters.feed
        return None if feed is None else feed.positions.get(self._journal_id)

    def count_left(self, left: LeftJournal) -> None:
        """Count what a journal holds that no budget here has heard of, until a feed covers it."""
        self._ahead.give_all_back()
        self._left.add(left, self.counters)

    def use_feed(self, feed: SpendFeed) -> None:
        """Take what the ledger knows; settlements that it covers are dropped."""
        self.take_feed(feed)

    def take_feed(self, feed: SpendFeed) -> set[WindowState] | None:
        """Do so; return the windows with less unposted than before, None if the feed was not new."""
        if self.counters.feed is not None and feed.version <= self.counters.feed.version:
            return None
        self._ahead.give_all_back()
        position = feed.positions.get(self._journal_id)
        covered: set[WindowState] = set()
        if position is not None:
            for window, charge_nano in self._unposted.take_covered(position, feed):
                covered.add(window)
                window.used -= charge_nano
        for window, charge_nano in self._left.take_covered(feed):
            covered.add(window)
            window.used -= charge_nano
        self.counters.use_feed(feed)
        return covered

    async def close(self) -> None:
        """Do nothing: there is no connection."""
