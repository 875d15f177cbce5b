"""The calls of one plan, written once: what changes with each request is added at the end.

The plan's numbers go as one MessagePack array: three counts (buckets, leases, budgets); for each
bucket amount, period and metric; for each lease its amount, and ours while not every worker has
written back; for each budget amount, 1 if hard, the most that may be ours in that time, the feed's
version and sum, and when the hash expires; at last the part of each bucket that is given in that time.
Money is in billionths, times are microseconds, the last milliseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from gateway.dataplane.limits.budget_state import ENDLESS_US, WindowState
from gateway.dataplane.limits.redis_scripts import (
    REGISTRY,
    STATE,
    RedisScripts,
    bucket_key,
    lease_key,
    window_key,
)
from gateway.dataplane.limits.resp_connection import bulk

if TYPE_CHECKING:
    from gateway.dataplane.limits.resolved_plan import ResolvedPlan
    from gateway.dataplane.limits.types import Claim

_THREE, _FIVE = (struct.Struct(f"<{count}d").pack for count in (3, 5))
LEASE_US = 30_000_000
_AFTER_WINDOW_MS = 2 * 86_400_000
_ENDLESS_MS = 30 * 86_400_000  # after the last write
_LEASE = bulk(b"%d" % LEASE_US)


class EncodedPlan:
    """The calls of one plan in certain windows, while ``stamp`` holds."""

    __slots__ = (
        "_admit",
        "_pack_settled",
        "_settle",
        "_top_up",
        "alone_until",
        "answer",
        "ends_us",
        "free_nano",
        "free_places",
        "free_tokens",
        "heard",
        "plan",
        "stamp",
        "starts_us",
        "windows",
    )

    def __init__(
        self,
        plan: ResolvedPlan,
        windows: tuple[WindowState, ...],
        scripts: RedisScripts,
        *,
        stamp: int,
        version: int,
        now_us: int,
        share: float,
        is_to_wait: bool,
    ) -> None:
        """``is_to_wait``: buckets give nothing until every worker has written back."""
        self.plan = plan
        self.windows = windows
        self.stamp = stamp
        self.alone_until = 0.0  # the event loop's clock: till then nothing is asked for together
        # When last heard, of all that hold: places in flight, tokens, money.
        self.free_places = 0
        self.free_tokens = self.free_nano = 0.0
        self.heard = -1  # which answer that was
        self.starts_us = max((window.start_us for window in windows), default=0)
        self.ends_us = min((window.end_us for window in windows), default=ENDLESS_US)
        keys = (
            *(STATE, REGISTRY),
            *(bucket_key(bucket.limit.id) for bucket in plan.buckets),
            *(lease_key(lease.limit.id) for lease in plan.leases),
            *(window_key(w.owner.budget.id, w.start_us) for w in windows),
        )
        numbers = (
            _encode(
                plan, windows, version=version, now_us=now_us, share=share, is_to_wait=is_to_wait
            ),
        )
        doubles = len(plan.buckets) + len(plan.leases) + 2 * len(windows)
        self.answer = struct.Struct(f"<{doubles}d")
        self._admit = scripts.head("admit", keys, numbers, 3)
        self._settle = scripts.head("settle", keys, numbers, 2)
        self._pack_settled = struct.Struct(f"<{5 + len(windows)}d").pack
        self._top_up = scripts.head("top_up", keys, numbers, 1)

    def admit(self, claims: Sequence[Claim], now_us: int) -> bytes:
        """Return the call that decides on claims, all of them or none; with leases, on one."""
        claim, number = claims[0], len(claims)
        request_id = claim.request_id.encode()
        tokens, output, hold = claim.input_tokens, claim.output_tokens, claim.hold_nano
        if number > 1:
            for claim in claims[1:]:
                tokens += claim.input_tokens
                output += claim.output_tokens
                hold += claim.hold_nano
        numbers = _FIVE(now_us, number, tokens, output, hold)
        return b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n%b" % (
            *(self._admit, len(numbers), numbers),
            *(len(request_id), request_id, _LEASE),
        )

    def top_up(self, now_us: int, output_tokens: int, hold_nano: int) -> bytes:
        """Return the call that reserves more."""
        return self._top_up + bulk(_THREE(now_us, output_tokens, hold_nano))

    def settle(
        self, request_id: str, now_us: int, corrections: tuple[int, int, int], hold: int
    ) -> bytes:
        """Return the call that settles; corrections of requests, input and output tokens."""
        unposted = [w.used - w.spent - w.others - w.held for w in self.windows]  # the property
        numbers = self._pack_settled(now_us, *corrections, hold, *unposted)
        rid = request_id.encode()
        return b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
            *(self._settle, len(numbers), numbers),
            *(len(rid), rid),
        )


def expires_at_ms(window: WindowState, now_us: int) -> int:
    """Return when a window's hash may go (milliseconds)."""
    if window.end_us >= ENDLESS_US:
        return now_us // 1000 + _ENDLESS_MS
    return window.end_us // 1000 + _AFTER_WINDOW_MS


def _encode(
    plan: ResolvedPlan,
    windows: tuple[WindowState, ...],
    *,
    version: int,
    now_us: int,
    share: float,
    is_to_wait: bool,
) -> bytes:
    numbers: list[float] = [len(plan.buckets), len(plan.leases), len(windows)]
    for bucket in plan.buckets:
        numbers += (bucket.limit.amount, bucket.limit.per_seconds * 1_000_000, bucket.metric)
    for lease in plan.leases:
        amount = lease.limit.amount
        numbers += (amount, min(amount, max(1, int(amount * share))))
    for window in windows:
        cap = window.amount
        if window.allowance is not None:
            cap = max(0, window.own + window.allowance - window.taken)
        numbers += (window.amount, int(window.owner.is_hard), cap)
        numbers += (version, window.spent, expires_at_ms(window, now_us))
    # After an outage half of it: each has decided alone, and what they know is no sum.
    numbers.append(0.0 if is_to_wait else 0.5)
    return msgspec.msgpack.encode(numbers)
