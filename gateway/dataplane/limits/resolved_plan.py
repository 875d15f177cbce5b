"""A LimitPlan with its counters looked up: what a decision goes over. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from gateway.dataplane.limits.hold_time import FIRST_HOLD_MS, WEIGHT, find_wait_ms
from gateway.dataplane.limits.token_bucket import TokenBucket
from gateway.dataplane.limits.types import INPUT, OUTPUT, REQUESTS, TOTAL
from gateway.snapshot.model import RateLimit

if TYPE_CHECKING:
    from gateway.dataplane.limits.budget_state import BudgetState, WindowState
    from gateway.dataplane.limits.types import Claim, Outcome

METRICS = {
    "requests": REQUESTS,
    "input_tokens": INPUT,
    "output_tokens": OUTPUT,
    "total_tokens": TOTAL,
}
IN_FLIGHT = "in_flight"

_BUSY_CLAIMS = 8  # on one plan
_BUSY_US = 10_000  # within so long


class LimitBucket(TokenBucket):
    """The bucket of one RateLimit."""

    __slots__ = ("limit", "metric")

    def __init__(self, limit: RateLimit, *, at_us: int, share: float) -> None:
        super().__init__(limit.amount, limit.per_seconds * 1_000_000, at_us=at_us, share=share)
        self.limit = limit
        self.metric = METRICS[limit.metric]

    def take_limit(self, limit: RateLimit, share: float) -> None:
        """Take a changed amount."""
        self.limit = limit
        self.metric = METRICS[limit.metric]
        self.change(limit.amount, limit.per_seconds * 1_000_000, share=share)


# Stands for a bucket that has no room.
NO_ROOM: Final = LimitBucket(RateLimit("", "", "", "requests", 0, 1), at_us=0, share=1.0)


def weigh(
    buckets: tuple[LimitBucket, ...], costs: tuple[int, int, int, int], now_us: int
) -> LimitBucket | None:
    """Say how full each bucket would be; return the one with the least room left, or NO_ROOM.

    Nothing is taken: ``next_level`` is to become the level. As :meth:`TokenBucket.level_at`, without
    a call for each.
    """
    tightest: LimitBucket | None = None
    least = inf
    for bucket in buckets:
        level, cost = bucket.level, costs[bucket.metric]
        elapsed_us = now_us - bucket.at_us
        if elapsed_us > 0:
            level -= elapsed_us * bucket.amount / bucket.period_us
            if level < 0.0:  # noqa: PLR1730  (max() is a call)
                level = 0.0
        after = level + cost
        if after > bucket.room and not bucket.has_room(level, cost):
            return NO_ROOM
        bucket.next_level = after
        room = bucket.amount - after
        if room < least:
            tightest, least = bucket, room
    return tightest


class ConcurrencyLimit:
    """Requests in flight under one RateLimit, from admission to settlement."""

    __slots__ = ("__weakref__", "amount", "count", "limit", "mean_hold_ms")

    def __init__(self, limit: RateLimit, *, share: float) -> None:
        self.count = 0
        self.mean_hold_ms = FIRST_HOLD_MS
        self.take_limit(limit, share)

    def take_limit(self, limit: RateLimit, share: float) -> None:
        """Take a changed amount; of a share at least one, unless the amount is 0."""
        self.limit = limit
        self.amount = min(limit.amount, max(1, int(limit.amount * share)))

    def find_wait_ms(self) -> int | None:
        """Return an estimate of the time until a place is free; None: there is never one."""
        if self.limit.amount <= 0:
            return None
        return find_wait_ms(self.mean_hold_ms)

    def end(self, held_us: int) -> None:
        """Give one place back that was held for so long."""
        self.count -= 1
        self.mean_hold_ms += (held_us / 1000 - self.mean_hold_ms) * WEIGHT

    def learn(self, held_us: int, number: int) -> None:
        """Learn for how long ``number`` of them were held, on the average."""
        weight = min(WEIGHT * number, 1.0)
        self.mean_hold_ms += (held_us / 1000 - self.mean_hold_ms) * weight


# A claim that has ended: for how long it held, its real input and output, its charge, and how much
# input and output was left then of what is taken ahead.
Ended = tuple["Claim", int, int, int, int, int, int]


class Ahead(Protocol):
    """Claims to come on one plan that were taken already."""

    def admit(self, claim: Claim, now_us: int) -> Outcome | None:
        """Let a claim have its part; None where there is too little left, or it is over."""

    windows: tuple[WindowState, ...]  # in which they are
    ended: list[Ended]  # meanwhile, and not counted yet
    charge: int  # of those that are, nano
    point: tuple[int, int]  # behind its latest close record
    until_us: int  # from then on nothing of it is used

    def is_used_up(self) -> bool:
        """Tell whether all of the claims came."""

    def is_crowded(self) -> bool:
        """Tell whether what others have used meanwhile leaves too little room for all of it."""

    def end(
        self, claim: Claim, held_us: int, input_tokens: int, output_tokens: int, charge_nano: int
    ) -> None:
        """Note that a claim has ended, whose real counts and charge are within what it held."""

    def count_ended(self, now_us: int) -> None:
        """Give what claims that have ended did not take to those to come, or else to the buckets."""

    def give_back(self, now_us: int) -> None:
        """Charge what was used, and give back the rest."""


class Heat:
    """How often a plan is asked lately."""

    __slots__ = ("begun_us", "claims")

    def __init__(self) -> None:
        self.begun_us = 0
        self.claims = 0

    def is_busy(self, now_us: int) -> bool:
        """Count a claim; tell whether they come close behind each other."""
        if not 0 <= now_us - self.begun_us < _BUSY_US:
            self.begun_us, self.claims = now_us, 0
        self.claims += 1
        return self.claims > _BUSY_CLAIMS

    def stay(self, now_us: int) -> None:
        """Be busy still: what was taken ahead was used up."""
        self.begun_us, self.claims = now_us, _BUSY_CLAIMS


class ResolvedPlan:
    """Every counter that a claim on one LimitPlan touches."""

    __slots__ = (
        "_current",
        "_ends_us",
        "_starts_us",
        "ahead",
        "buckets",
        "budgets",
        "encoded",
        "heat",
        "leases",
        "request_buckets",
        "token_buckets",
    )

    def __init__(
        self,
        buckets: tuple[LimitBucket, ...],
        leases: tuple[ConcurrencyLimit, ...],
        budgets: tuple[BudgetState, ...],
    ) -> None:
        self.buckets = buckets
        self.request_buckets = tuple(bucket for bucket in buckets if bucket.metric == REQUESTS)
        self.token_buckets = tuple(bucket for bucket in buckets if bucket.metric != REQUESTS)
        self.leases = leases
        self.budgets = budgets
        self.encoded: object = None  # the Redis limiter's own
        self.ahead: Ahead | None = None  # claims to come that were taken already
        self.heat = Heat()
        # The windows that were looked up last, and the time that is in all of them.
        self._current: tuple[WindowState, ...] = ()
        self._starts_us = self._ends_us = 0

    def take(self, levels: Sequence[float], now_us: int) -> Tightest:
        """Set the levels after a claim; return the request and the token bucket with least room."""
        requests: LimitBucket | None = None
        tokens: LimitBucket | None = None
        requests_room = tokens_room = 0.0
        for bucket, level in zip(self.buckets, levels):  # noqa: B905  (made together; costs time)
            bucket.level = level
            bucket.at_us = now_us
            room = bucket.amount - level
            if bucket.metric:
                if tokens is None or room < tokens_room:
                    tokens, tokens_room = bucket, room
            elif requests is None or room < requests_room:
                requests, requests_room = bucket, room
        return requests, tokens

    def correct(self, more_input: int, more_output: int, now_us: int) -> None:
        """Put real counts of tokens in the place of reserved ones."""
        corrections = (0, more_input, more_output, more_input + more_output)
        for bucket in self.token_buckets:
            if corrections[bucket.metric]:
                bucket.add(corrections[bucket.metric], now_us)

    def find_windows(self, started_at_us: int) -> tuple[WindowState, ...]:
        """Return the window of each budget that a request belongs to."""
        current = self._current
        if self._starts_us <= started_at_us < self._ends_us:
            for budget, window in zip(self.budgets, current):  # noqa: B905  (made together)
                if budget.current is not window:
                    break
            else:
                return current
        return self._look_up_windows(started_at_us)

    def _look_up_windows(self, started_at_us: int) -> tuple[WindowState, ...]:
        """Do so, and keep them for the next if they are the current ones of all budgets."""
        windows = []
        for budget in self.budgets:
            window = budget.current
            if not window.start_us <= started_at_us < window.end_us:
                window = budget.find_window(started_at_us)
            windows.append(window)
        self._current = tuple(windows)
        self._starts_us = max((window.start_us for window in windows), default=0)
        self._ends_us = min((window.end_us for window in windows), default=0)
        return self._current


Tightest = tuple["LimitBucket | None", "LimitBucket | None"]  # of requests, of tokens

# What a limiter keeps in ``Claim.state`` from admission to settlement: the plan, the windows that
# the claim belongs to, and when it was admitted (monotonic microseconds).
Held = tuple[ResolvedPlan, tuple["WindowState", ...], int]
