"""Where the counters of one process are found, by the ids of limits and budgets. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from gateway.dataplane.limits.budget_state import BudgetState, WindowState
from gateway.dataplane.limits.resolved_plan import (
    IN_FLIGHT,
    ConcurrencyLimit,
    LimitBucket,
    ResolvedPlan,
)

if TYPE_CHECKING:
    from billing.budgets.spend_feed import SpendFeed
    from gateway.dataplane.limits.types import LimitPlan
    from gateway.snapshot.model import Budget, RateLimit, Snapshot

_SWEEP_US = 60_000_000
_MOST_PLANS = 50_000  # kept resolved; more only if the caller makes plans anew each time


class Counters:
    """Every bucket, lease count and budget that this process has met.

    A state lives while a resolved plan or a running claim refers to it, or while it is not as good
    as new; so there are never two of one id, and none of an id that the Snapshot has dropped.
    """

    def __init__(
        self, *, share: float, monotonic_us: Callable[[], int], wall_us: Callable[[], int]
    ) -> None:
        self.share = share  # of every limit
        self.money_share = share  # of what is left of every budget
        self.plans: dict[LimitPlan, ResolvedPlan] = {}
        self.buckets: WeakValueDictionary[str, LimitBucket] = WeakValueDictionary()
        self.leases: WeakValueDictionary[str, ConcurrencyLimit] = WeakValueDictionary()
        self.budgets: WeakValueDictionary[str, BudgetState] = WeakValueDictionary()
        self.feed: SpendFeed | None = None
        self._monotonic_us = monotonic_us
        self._wall_us = wall_us
        self._limits: dict[str, RateLimit] = {}  # of the Snapshot
        self._budgets: dict[str, Budget] = {}
        self._in_use: list[object] = []
        self._swept_at_us = monotonic_us()

    def resolve(self, plan: LimitPlan) -> ResolvedPlan:
        """Return the counters of a plan, made where they do not exist yet."""
        found = self.plans.get(plan)
        if found is not None:
            return found
        if len(self.plans) >= _MOST_PLANS:
            self.sweep()
        limits = [self._limits.get(limit.id, limit) for limit in plan.limits]
        budgets = [self._budgets.get(budget.id, budget) for budget in plan.budgets]
        resolved = ResolvedPlan(
            tuple(self._find_bucket(limit) for limit in limits if limit.metric != IN_FLIGHT),
            tuple(self._find_lease(limit) for limit in limits if limit.metric == IN_FLIGHT),
            tuple(self._find_budget(budget) for budget in budgets),
        )
        self.plans[plan] = resolved
        return resolved

    def use_snapshot(self, snapshot: Snapshot) -> None:
        """Take changed amounts; what was used stays used. States of ids that are gone go too."""
        self._limits = {limit.id: limit for limit in snapshot.limits}
        self._budgets = {budget.id: budget for budget in snapshot.budgets}
        for limit_id, bucket in list(self.buckets.items()):
            limit = self._limits.get(limit_id)
            if limit is None or limit.metric == IN_FLIGHT:
                self.buckets.pop(limit_id, None)
            elif limit != bucket.limit:
                bucket.take_limit(limit, self.share)
        for limit_id, lease in list(self.leases.items()):
            limit = self._limits.get(limit_id)
            if limit is None or limit.metric != IN_FLIGHT:
                self.leases.pop(limit_id, None)
            elif limit != lease.limit:
                lease.take_limit(limit, self.share)
        for budget_id, state in list(self.budgets.items()):
            budget = self._budgets.get(budget_id)
            if budget is None:
                self.budgets.pop(budget_id, None)
            elif budget != state.budget:
                state.change(budget)
        self.sweep()

    def use_feed(self, feed: SpendFeed) -> None:
        """Take what the ledger knows of each budget."""
        self.feed = feed
        for budget_id, budget in list(self.budgets.items()):
            budget.take_feed(feed.spent.get(budget_id))
        if self._monotonic_us() - self._swept_at_us > _SWEEP_US:
            self.sweep()

    def scale(self, share: float) -> None:
        """From now on let through this share of every limit, as full as the whole one was.

        On the way back a bucket is as full as our share of it was: others may have used theirs.
        """
        now_us = self._monotonic_us()
        for bucket in list(self.buckets.values()):
            level = bucket.level_at(now_us)
            bucket.at_us = now_us
            scaled = level * share / self.share
            if share > self.share:
                scaled = min(scaled, max(level, float(bucket.whole)))
            bucket.level = scaled
            bucket.take_limit(bucket.limit, share)
        for lease in list(self.leases.values()):
            lease.take_limit(lease.limit, share)
        self.share = share

    def split_money(self, share: float) -> None:
        """From now on use at most this share of what is left of every budget."""
        self.money_share = share
        for budget in list(self.budgets.values()):
            budget.split(share)

    def turn_peaks(self) -> None:
        """Begin another time in which the most that others held is kept."""
        for budget in list(self.budgets.values()):
            for window in budget.windows.values():
                window.turn_peaks()

    def own_windows(self) -> list[WindowState]:
        """Return the budget windows in which this process holds or has charged something."""
        return [
            window
            for budget in list(self.budgets.values())
            for window in budget.windows.values()
            if window.own or window.held or window.pending
        ]

    def sweep(self) -> None:
        """Forget plans, and the states that nothing refers to and that are as good as new."""
        now_us = self._swept_at_us = self._monotonic_us()
        # Also one that has drained, while its limit exists: under another amount it might not have.
        in_use: list[object] = [
            bucket
            for limit_id, bucket in self.buckets.items()
            if limit_id in self._limits or bucket.level_at(now_us) > 0.0
        ]
        in_use += [lease for lease in self.leases.values() if lease.count]
        in_use += [b for b in self.budgets.values() if b.share < 1.0 or not b.is_idle()]
        self._in_use = in_use
        self.plans.clear()
        # What is still there is in use, or a running claim refers to it, which may use it yet.
        self._in_use = [*self.buckets.values(), *self.leases.values(), *self.budgets.values()]

    def _find_bucket(self, limit: RateLimit) -> LimitBucket:
        bucket = self.buckets.get(limit.id)
        if bucket is None:
            bucket = LimitBucket(limit, at_us=self._monotonic_us(), share=self.share)
            self.buckets[limit.id] = bucket
        elif bucket.limit != limit:
            bucket.take_limit(limit, self.share)
        return bucket

    def _find_lease(self, limit: RateLimit) -> ConcurrencyLimit:
        lease = self.leases.get(limit.id)
        if lease is None:
            lease = self.leases[limit.id] = ConcurrencyLimit(limit, share=self.share)
        elif lease.limit != limit:
            lease.take_limit(limit, self.share)
        return lease

    def _find_budget(self, budget: Budget) -> BudgetState:
        state = self.budgets.get(budget.id)
        if state is None:
            feed = self.feed.spent.get(budget.id) if self.feed else None
            state = BudgetState(budget, self._wall_us(), feed=feed, share=self.money_share)
            self.budgets[budget.id] = state
        elif state.budget != budget:
            state.change(budget)
        return state
