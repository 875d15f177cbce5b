"""Reads what ``admit.lua`` answers, and keeps the book by it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.dataplane.limits import explain

if TYPE_CHECKING:
    from gateway.dataplane.limits.book import Book
    from gateway.dataplane.limits.budget_state import WindowState
    from gateway.dataplane.limits.encode_plan import EncodedPlan
    from gateway.dataplane.limits.types import Claim, Outcome


REFUSED = ord("0")


def read_admitted(
    book: Book,
    claims: Sequence[Claim],
    calls: EncodedPlan,
    reply: bytes,
    *,
    monotonic_us: int,
) -> Outcome:
    """Count claims that were admitted together in the book; return the outcome for each."""
    plan, windows = calls.plan, calls.windows
    numbers = calls.answer.unpack_from(reply, 1)
    leases_at = len(plan.buckets)
    at = leases_at + len(plan.leases) + 1
    if plan.leases:
        counts = numbers[leases_at:]
        free = [one.limit.amount - int(n) for one, n in zip(plan.leases, counts, strict=False)]
        calls.free_places = min(free) - 1
    has_warnings = False
    for window in windows:
        others = numbers[at]
        if others != window.others:
            window.set_others(int(others))
        if not window.is_hard and window.used >= window.amount:
            has_warnings = True
        at += 2
    warnings = explain.used_up(windows) if has_warnings else ()
    # The levels come first, so what stands behind them is not looked at.
    tightest = book.take(claims, plan, windows, levels=numbers, now_us=monotonic_us)
    return explain.admitted(tightest, warnings)


def read_refused(
    book: Book,
    claim: Claim,
    calls: EncodedPlan,
    reply: bytes,
    *,
    monotonic_us: int,
    wall_us: int,
) -> Outcome:
    """Return the outcome for a claim that was refused, with the limit that struck."""
    plan, windows = calls.plan, calls.windows
    numbers = calls.answer.unpack_from(reply, 1)
    leases_at = len(plan.buckets)
    money_at = leases_at + len(plan.leases)
    book.heard += 1
    for window, others in zip(windows, numbers[money_at + 1 :: 2], strict=True):
        if others != window.others:
            window.set_others(int(others))
    levels = list(numbers[:leases_at])
    for bucket, level in zip(plan.buckets, levels, strict=True):
        bucket.level = level
        bucket.at_us = monotonic_us
    held = _held_in(reply, calls.answer.size, len(windows))
    known = [window.used for window in windows]
    # It was refused by what Redis knew, which may be a newer feed than ours.
    _set_used(windows, [int(number) for number in numbers[money_at::2]])
    try:
        return explain.refused_elsewhere(
            claim,
            plan,
            windows,
            held=held,
            levels=levels,
            counts=[int(number) for number in numbers[leases_at:money_at]],
            wall_us=wall_us,
        )
    finally:
        _set_used(windows, known)


def _held_in(reply: bytes, answer_size: int, windows: int) -> list[int]:
    """Return what all workers hold of each window: it stands at the end of a refusal."""
    return [int(held) for held in struct.unpack_from(f"<{windows}d", reply, 1 + answer_size)]


def _set_used(windows: Sequence[WindowState], used: Sequence[int]) -> None:
    for window, amount in zip(windows, used, strict=True):
        window.used = amount
