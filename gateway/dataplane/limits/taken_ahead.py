"""Claims of a busy plan, taken some milliseconds ahead: one decision for many requests.

Under load the claims of one plan come one after the other, each over the same counters. Where these
are far from full, what :data:`CLAIMS` of them would take is set aside at once, and each then takes
its part without asking every counter again. What is set aside narrows the room of its buckets and
is held of its budgets, so nobody can be admitted into it; and as soon as anybody would be refused,
or something is changed or looked at, all of it is given back first. So every refusal, and every
admission, is what it would have been without this; only a bucket that runs empty meanwhile drains
some milliseconds later.

What such claims end with is counted by eights, in one loop, as long as it is no more than they were
let in with: till then it is as if they still ran, which refuses nobody for the reason above.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.dataplane.limits.types import INPUT, OUTPUT, REQUESTS, Outcome, Standing

if TYPE_CHECKING:
    from gateway.dataplane.limits.budget_state import WindowState
    from gateway.dataplane.limits.resolved_plan import Ended, LimitBucket, ResolvedPlan
    from gateway.dataplane.limits.types import Claim
    from gateway.dataplane.limits.unposted import Unposted

CLAIMS = 64
LASTS_US = 20_000
TOGETHER = 8  # ends that are counted at once
_NEVER_US = 2**63


class TakenAhead:
    """What one plan has set aside."""

    __slots__ = (
        "_costs",
        "_counted",
        "_counts_input",
        "_counts_output",
        "_ends_us",
        "_held_us",
        "_hold_nano",
        "_input_tokens",
        "_output_tokens",
        "_plan",
        "_requests",
        "_requests_left",
        "_starts_us",
        "_tokens_left",
        "charge",
        "ended",
        "point",
        "until_us",
        "windows",
    )

    def __init__(
        self,
        plan: ResolvedPlan,
        claim: Claim,
        windows: tuple[WindowState, ...],
        outcome: Outcome,
        *,
        tightest: LimitBucket | None,
        now_us: int,
    ) -> None:
        """Set aside what claims like ``claim``, just admitted with ``outcome``, would take.

        ``tightest``: the token bucket that the outcome tells of.
        """
        self._plan, self.windows = plan, windows
        self._requests = number = _find_places(plan)
        self._input_tokens = claim.input_tokens * number
        self._output_tokens = claim.output_tokens * number
        self._hold_nano = claim.hold_nano * number
        self._costs = self._left()
        self.until_us = now_us + LASTS_US
        # What ended is charged out of what is set aside, to which its hold goes back.
        self.ended: list[Ended] = []
        self._counted = self._held_us = self.charge = 0  # how many, for how long they held
        self.point = (0, 0)  # behind the close record of the latest
        self._starts_us = max((window.start_us for window in windows), default=0)
        self._ends_us = min((window.end_us for window in windows), default=2**63)
        # What is told of the limits, and what remains beside what is left here.
        metric = REQUESTS if tightest is None else tightest.metric
        self._counts_input = int(metric != OUTPUT)
        self._counts_output = int(metric != INPUT)
        self._requests_left = _without(outcome.requests, number)
        self._tokens_left = _without(outcome.tokens, self._costs[metric])
        for bucket in plan.buckets:
            bucket.set_aside(self._costs[bucket.metric])
        for lease in plan.leases:
            lease.count += number
        for window in windows:
            window.take(self._hold_nano)

    def _left(self) -> tuple[int, int, int, int]:
        tokens, output = self._input_tokens, self._output_tokens
        return self._requests, tokens, output, tokens + output

    def admit(self, claim: Claim, now_us: int) -> Outcome | None:
        """Let a claim have its part; None where this is no longer enough for it, or over."""
        requests = self._requests - 1
        tokens = self._input_tokens - claim.input_tokens
        output = self._output_tokens - claim.output_tokens
        hold = self._hold_nano - claim.hold_nano
        if (
            requests < 0
            or tokens < 0
            or output < 0
            or hold < 0
            or now_us >= self.until_us
            or claim.started_at_us < self._starts_us
            or claim.started_at_us >= self._ends_us
        ):
            if not self.ended:
                return None
            self.count_ended(now_us)
            return self.admit(claim, now_us)
        self._requests = requests
        self._input_tokens = tokens
        self._output_tokens = output
        self._hold_nano = hold
        claim.state = (self._plan, self.windows, now_us)
        tokens = tokens * self._counts_input + output * self._counts_output
        return Outcome(None, self._requests_left, self._tokens_left, (), requests, tokens)

    def end(
        self, claim: Claim, held_us: int, input_tokens: int, output_tokens: int, charge_nano: int
    ) -> None:
        """Note that a claim has ended, whose real counts and charge are within what it held."""
        left, other = self._input_tokens, self._output_tokens
        self.ended.append((claim, held_us, input_tokens, output_tokens, charge_nano, left, other))

    def count_ended(self, now_us: int) -> None:
        """Give what claims that have ended did not take to those to come, or else to the buckets.

        Never more than was set aside: what a bucket has leaked since an earlier claim was reserved
        is nobody's room any more.
        """
        _, most_input, most_output, _ = self._costs
        kept_input = kept_output = too_many = too_much = 0
        hold, charged, held_us = self._hold_nano, 0, 0
        # In order: at each end no more comes back than was used by then.
        for claim, one_held_us, tokens, output, charge_nano, input_left, output_left in self.ended:
            back, most = claim.input_tokens - tokens, most_input - input_left - kept_input
            if back > most:
                too_many += back - most
                back = most
            kept_input += back
            back, most = claim.output_tokens - output, most_output - output_left - kept_output
            if back > most:
                too_much += back - most
                back = most
            kept_output += back
            hold += claim.hold_nano
            charged += charge_nano
            held_us += one_held_us
        number = len(self.ended)
        self.ended.clear()
        if too_many or too_much:
            over = (0, too_many, too_much, too_many + too_much)
            for bucket in self._plan.token_buckets:
                bucket.add(-over[bucket.metric], max(now_us, bucket.at_us))
        self._input_tokens += kept_input
        self._output_tokens += kept_output
        self._hold_nano = hold - charged
        self.charge += charged
        self._counted += number
        self._held_us += held_us

    def is_used_up(self) -> bool:
        """Tell whether all of the claims came."""
        return not self._requests

    def is_crowded(self) -> bool:
        """Tell whether what others have used meanwhile leaves too little room for all of it."""
        return any(bucket.level > bucket.room for bucket in self._plan.buckets) or any(
            window.used >= window.amount for window in self.windows
        )

    def give_back(self, now_us: int) -> None:
        """Charge what was used, as of when it was used, and give back the rest."""
        now_us = min(now_us, self.until_us)
        self.count_ended(now_us)
        number = self._counted
        for lease in self._plan.leases:
            lease.count -= self._requests + number
            if number:
                lease.learn(self._held_us // number, number)
        if number and self.windows:
            owner = self.windows[now_us % len(self.windows)].owner
            owner.learn_hold(self._held_us // number, number)
        left = self._left()
        for bucket in self._plan.buckets:
            cost = self._costs[bucket.metric]
            bucket.set_aside(-cost)
            bucket.add(cost - left[bucket.metric], max(now_us, bucket.at_us))
        for window in self.windows:
            window.take(-self._hold_nano - self.charge, self.charge)


class AllAhead:
    """What all plans of one limiter have set aside, oldest first."""

    __slots__ = ("_monotonic_us", "_unposted", "over_at_us", "plans")

    def __init__(self, monotonic_us: Callable[[], int], unposted: Unposted) -> None:
        self._monotonic_us = monotonic_us
        self._unposted = unposted  # what is charged goes there
        self.plans: list[ResolvedPlan] = []
        self.over_at_us = _NEVER_US  # when the first of them is over

    def begin(self, plan: ResolvedPlan, ahead: TakenAhead) -> None:
        """Keep what a plan has just taken ahead."""
        plan.ahead = ahead
        if not self.plans:
            self.over_at_us = ahead.until_us
        self.plans.append(plan)

    def give_back(self, plan: ResolvedPlan, now_us: int) -> None:
        """Give back what a plan has taken ahead."""
        ahead, plan.ahead = plan.ahead, None
        if ahead is not None:
            self.plans.remove(plan)
            first = self.plans[0].ahead if self.plans else None
            self.over_at_us = _NEVER_US if first is None else first.until_us
            ahead.give_back(now_us)
            if ahead.is_used_up():
                plan.heat.stay(now_us)
            if ahead.charge and ahead.windows:
                self._unposted.add(ahead.point, ahead.charge, ahead.windows, now_us)

    def give_back_over(self, now_us: int) -> None:
        """Give back what was taken ahead for a time that is over."""
        while now_us >= self.over_at_us:
            self.give_back(self.plans[0], now_us)

    def give_back_crowded(self, now_us: int) -> None:
        """Give back what was taken ahead where others have used more than was to be seen."""
        for plan in list(self.plans):
            if plan.ahead is not None and plan.ahead.is_crowded():
                self.give_back(plan, now_us)

    def give_all_back(self) -> bool:
        """Give back what all plans have taken ahead; tell whether there was any."""
        if not self.plans:
            return False
        now_us = self._monotonic_us()
        for plan in list(self.plans):
            self.give_back(plan, now_us)
        return True


def _without(standing: Standing | None, cost: int) -> Standing | None:
    if standing is None:
        return None
    return Standing(standing.limit, standing.remaining - cost, standing.reset_ms)


def _find_places(plan: ResolvedPlan) -> int:
    """Return for how many claims: of places in flight at most half of what is free."""
    free = [lease.amount - lease.count for lease in plan.leases]
    return min(CLAIMS, min(free, default=2 * CLAIMS) // 2)


def has_room_ahead(plan: ResolvedPlan, claim: Claim, windows: tuple[WindowState, ...]) -> bool:
    """Tell whether every counter of a plan has room for many more claims like this one."""
    tokens, output = claim.input_tokens, claim.output_tokens
    costs = (1, tokens, output, tokens + output)
    for bucket in plan.buckets:
        if bucket.level + 2 * CLAIMS * costs[bucket.metric] > bucket.room:
            return False
    if not _find_places(plan):
        return False
    hold = 2 * CLAIMS * claim.hold_nano
    return all(
        window.allowance is None and window.used + hold < window.amount for window in windows
    )
