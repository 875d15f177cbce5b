"""From counters to what the caller hears: standings, and the limit that struck. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

from gateway.dataplane.limits.budget_state import ENDLESS_US
from gateway.dataplane.limits.hold_time import find_wait_ms
from gateway.dataplane.limits.types import Outcome, Refusal, Standing

if TYPE_CHECKING:
    from gateway.dataplane.limits.budget_state import WindowState
    from gateway.dataplane.limits.resolved_plan import (
        ConcurrencyLimit,
        LimitBucket,
        ResolvedPlan,
        Tightest,
    )
    from gateway.dataplane.limits.types import Claim
    from gateway.snapshot.model import Budget

# How long to wait where only this process's share stands in the way: it may have all of it again.
SHARE_WAIT_MS = 1_000


def admitted(tightest: Tightest, warnings: tuple[Budget, ...]) -> Outcome:
    """Return the outcome for a claim that was admitted; its buckets' levels are those after it."""
    requests, tokens = tightest
    return Outcome(
        None,
        None if requests is None else _standing(requests, requests.level),
        None if tokens is None else _standing(tokens, tokens.level),
        warnings,
    )


def standings(
    plan: ResolvedPlan, levels: Sequence[float]
) -> tuple[Standing | None, Standing | None]:
    """Return how the request limit and the token limit with the least room stand."""
    tightest: list[tuple[LimitBucket, float] | None] = [None, None]
    for bucket, level in zip(plan.buckets, levels, strict=True):
        kind = bucket.metric > 0
        known = tightest[kind]
        if known is None or bucket.amount - level < known[0].amount - known[1]:
            tightest[kind] = (bucket, level)
    requests, tokens = (None if known is None else _standing(*known) for known in tightest)
    return requests, tokens


def _standing(bucket: LimitBucket, level: float) -> Standing:
    amount = bucket.amount
    room = amount - level
    return Standing(
        bucket.whole,
        int(room + amount * 1e-9) if room > 0.0 else 0,
        # As bucket.reset_ms, without a call: two standings are told on each answer.
        ceil(level * bucket.period_us / amount / 1000.0) if amount > 0.0 else 0,
    )


def refused(
    claim: Claim,
    plan: ResolvedPlan,
    windows: Sequence[WindowState],
    *,
    held: Sequence[int],
    levels: Sequence[float],
    counts: Sequence[int],
    wall_us: int,
) -> Outcome | None:
    """Return the outcome for a claim that some limit strikes: the one with the longest wait.

    ``levels`` are those before the claim; of budgets, what is known in ``windows``, and what
    running requests hold of each. None if nothing strikes.
    """
    costs = _costs(claim)
    struck: list[Refusal] = []
    for bucket, level in zip(plan.buckets, levels, strict=True):
        cost = costs[bucket.metric]
        if not bucket.has_room(level, cost):
            struck.append(_refused_by_bucket(bucket, level, cost))
    for lease, count in zip(plan.leases, counts, strict=True):
        if count >= lease.amount:
            struck.append(_refused_by_lease(lease, count))
    struck += [
        _refused_by_budget(window, claim.hold_nano, held_of_it, wall_us)
        for window, held_of_it in zip(windows, held, strict=True)
        if window.is_hard and not window.has_room(claim.hold_nano)
    ]
    if not struck:
        return None
    requests, tokens = standings(plan, levels)
    return Outcome(max(struck, key=_wait), requests, tokens, used_up(windows))


def refused_elsewhere(
    claim: Claim,
    plan: ResolvedPlan,
    windows: Sequence[WindowState],
    *,
    held: Sequence[int],
    levels: Sequence[float],
    counts: Sequence[int],
    wall_us: int,
) -> Outcome:
    """Return the outcome for a claim that Redis refused.

    What this worker knows of the money may be newer by what is on its way; and while not every
    worker has written back, not all of a bucket and a share of the rest were ours: if nothing
    strikes any more, it was that.
    """
    outcome = refused(
        claim, plan, windows, held=held, levels=levels, counts=counts, wall_us=wall_us
    )
    if outcome is not None:
        return outcome
    requests, tokens = standings(plan, levels)
    hard = next((window for window in windows if window.is_hard), None)
    if plan.buckets:
        bucket = plan.buckets[0]
        refusal = Refusal(
            limit=bucket.limit,
            retry_after_ms=SHARE_WAIT_MS,
            requested=_costs(claim)[bucket.metric],
            is_share=True,
        )
    elif hard is not None:
        refusal = Refusal(
            budget=hard.owner.budget,
            retry_after_ms=SHARE_WAIT_MS,
            remaining=max(0, hard.amount - hard.used),
            requested=claim.hold_nano,
            resets_at_us=None if hard.end_us >= ENDLESS_US else hard.end_us,
            is_share=True,
        )
    else:
        lease = plan.leases[0]
        refusal = Refusal(limit=lease.limit, retry_after_ms=SHARE_WAIT_MS, requested=1)
    return Outcome(refusal, requests, tokens, used_up(windows))


def used_up(windows: Sequence[WindowState]) -> tuple[Budget, ...]:
    """Return the soft budgets that are used up."""
    return tuple(
        window.owner.budget
        for window in windows
        if not window.is_hard and window.used >= window.amount
    )


def _wait(refusal: Refusal) -> float:
    return float("inf") if refusal.retry_after_ms is None else refusal.retry_after_ms


def _costs(claim: Claim) -> tuple[int, int, int, int]:
    return (1, claim.input_tokens, claim.output_tokens, claim.input_tokens + claim.output_tokens)


def _refused_by_bucket(bucket: LimitBucket, level: float, cost: int) -> Refusal:
    return Refusal(
        limit=bucket.limit,
        retry_after_ms=bucket.find_wait_ms(level, cost),
        remaining=max(0, int(bucket.amount - level)),
        requested=cost,
    )


def _refused_by_lease(lease: ConcurrencyLimit, count: int) -> Refusal:
    return Refusal(
        limit=lease.limit,
        retry_after_ms=lease.find_wait_ms(),
        remaining=max(0, lease.limit.amount - count),
        requested=1,
    )


def _refused_by_budget(window: WindowState, hold: int, held: int, wall_us: int) -> Refusal:
    left = window.amount - window.used
    resets_at_us = None if window.end_us >= ENDLESS_US else window.end_us
    is_share = left > 0 and hold <= left  # all of the money would do: only a share of it is ours
    is_held = window.is_only_held(hold, held)
    waits_ms = []
    if hold <= window.amount and window.amount > 0 and resets_at_us is not None:
        waits_ms.append(max(1, -((wall_us - resets_at_us) // 1000)))
    if is_held:
        waits_ms.append(find_wait_ms(window.owner.mean_hold_ms))
    elif is_share:
        waits_ms.append(SHARE_WAIT_MS)
    return Refusal(
        budget=window.owner.budget,
        retry_after_ms=min(waits_ms, default=None),
        remaining=max(0, left),
        requested=hold,
        resets_at_us=resets_at_us,
        held=held,
        is_held=is_held,
        is_share=is_share,
    )
