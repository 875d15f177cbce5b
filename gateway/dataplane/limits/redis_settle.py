"""Settlements on their way to Redis: told one by one, or, under load, those of a plan added up.

Where a limit or a budget is near, each is told at once: what it gives back may be what the next claim
needs, and that may be asked for by another worker.

What is added up reaches the book and Redis in one step, before anything absolute of the same money is
written (:class:`gateway.dataplane.limits.own_part.OwnPart` sees to that) and before a SpendFeed is
taken. With a connection it is forgotten but for the book: what follows is written back from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, cast

from gateway.dataplane.limits.encode_plan import EncodedPlan
from gateway.dataplane.limits.resp_connection import PATIENT_SECONDS, Haste

if TYPE_CHECKING:
    from gateway.dataplane.limits.book import Book
    from gateway.dataplane.limits.budget_state import WindowState
    from gateway.dataplane.limits.membership import Membership
    from gateway.dataplane.limits.own_part import OwnPart
    from gateway.dataplane.limits.redis_scripts import RedisScripts
    from gateway.dataplane.limits.resolved_plan import Held, ResolvedPlan
    from gateway.dataplane.limits.types import Claim

# With room for fewer claims like the one that ends, somebody may wait for what it gives back.
NEAR = 64

Corrections = tuple[int, int, int]  # of requests, input and output tokens
JournalPoint = tuple[int, int]  # segment and offset


class _Sum:
    """What the settlements of one plan in the same windows come to."""

    __slots__ = (
        "admitted_at_us",
        "charge",
        "ends_us",
        "hold",
        "input",
        "number",
        "output",
        "point",
        "started_at_us",
        "starts_us",
        "windows",
    )

    def __init__(self, calls: EncodedPlan, started_at_us: int) -> None:
        self.input = self.output = self.hold = self.charge = 0
        self.number = 0
        self.admitted_at_us = 0  # the sum of all
        self.point = (0, 0)  # behind the close record of the latest
        self.windows = calls.windows
        self.started_at_us = started_at_us  # of the first: it says which windows
        self.starts_us, self.ends_us = calls.starts_us, calls.ends_us


class Settlements:
    """The settlements of one limiter."""

    def __init__(
        self,
        book: Book,
        membership: Membership,
        scripts: RedisScripts,
        own: OwnPart,
        *,
        now_us: Callable[[], int],
        calls_for: Callable[[ResolvedPlan, int], EncodedPlan],
        look_after: Callable[[int, Any], None],
    ) -> None:
        self._book = book
        self._membership = membership
        self._scripts = scripts
        self._own = own
        self._now_us = now_us
        self._calls_for = calls_for
        self._look_after = look_after
        self._sums: dict[ResolvedPlan, _Sum] = {}
        self._timer: asyncio.TimerHandle | None = None

    def tell(
        self, claim: Claim, plan: ResolvedPlan, corrections: Corrections, haste: Haste
    ) -> None:
        """Tell that a claim has ended, whose corrections the book has."""
        if self._membership.connection is None:
            self._own.note_end(claim.request_id, plan)
        else:
            if plan in self._sums:  # before it was near
                self.flush()
            ended = (plan, claim.started_at_us, claim.request_id)
            self._send(*ended, corrections, claim.hold_nano, haste=haste)

    def add(
        self, claim: Claim, input_tokens: int, output_tokens: int, charge: int, point: JournalPoint
    ) -> None:
        """Tell, and have the book know, of a claim in some milliseconds, with others of its plan.

        ``point``: behind its close record. The plan has no leases.
        """
        plan, _, admitted_at_us = cast("Held", claim.state)
        claim.state = None
        started_at_us = claim.started_at_us
        one = self._sums.get(plan)
        if one is None or not one.starts_us <= started_at_us < one.ends_us:
            one = self._begin(plan, started_at_us)
        one.number += 1
        one.admitted_at_us += admitted_at_us
        one.input += input_tokens - claim.input_tokens
        one.output += output_tokens - claim.output_tokens
        one.hold += claim.hold_nano
        one.charge += charge
        one.point = point

    def _begin(self, plan: ResolvedPlan, started_at_us: int) -> _Sum:
        if plan in self._sums:  # in other windows
            self.flush()
        one = self._sums[plan] = _Sum(self._calls_for(plan, started_at_us), started_at_us)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PATIENT_SECONDS, self.flush)
        return one

    def flush(self) -> None:
        """Write what was added up."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for plan, one in self._take_sums():
            self._send(plan, one.started_at_us, "", (0, one.input, one.output), one.hold)

    def flush_beside(self, plan: ResolvedPlan) -> bool:
        """Write what was added up if some of it counts for ``plan``; tell whether."""
        mine = {*plan.token_buckets, *plan.budgets}
        if any(not mine.isdisjoint((*one.token_buckets, *one.budgets)) for one in self._sums):
            self.flush()
            return True
        return False

    def drop(self) -> None:
        """Let the book have what was added up: all is written back from there."""
        self._take_sums()

    def _take_sums(self) -> list[tuple[ResolvedPlan, _Sum]]:
        sums = list(self._sums.items())
        self._sums.clear()
        for plan, one in sums:
            self._book.settle_sum(
                plan,
                one.windows,
                number=one.number,
                more=(one.input, one.output),
                hold=one.hold,
                charge=one.charge,
                admitted_at_us=one.admitted_at_us // one.number,
                journal_point=one.point,
            )
        return sums

    def _send(
        self,
        plan: ResolvedPlan,
        started_at_us: int,
        request_id: str,
        corrections: Corrections,
        hold: int,
        *,
        haste: Haste = Haste.PATIENT,
    ) -> None:
        connection = self._membership.connection
        if connection is None:
            return
        calls = self._calls_for(plan, started_at_us)
        payload = calls.settle(request_id, self._now_us(), corrections, hold)
        asked = (request_id, plan, self._scripts.epoch)
        connection.send(payload, self._on_reply, asked, haste)

    def _on_reply(self, asked: tuple[str, ResolvedPlan, int], reply: Any) -> None:
        if type(reply) is not int:
            self._own.note_end(asked[0], asked[1])
            self._look_after(asked[2], reply)


def find_haste(
    claim: Claim, plan: ResolvedPlan, windows: tuple[WindowState, ...], heard: int
) -> Haste:
    """Tell whether somebody may wait for what ``claim`` gives back; by what was heard last.

    ``heard``: another number whenever something was heard of Redis, for the room is looked for once
    between two answers.
    """
    calls = plan.encoded
    if not isinstance(calls, EncodedPlan) or calls.windows is not windows:
        if plan.leases:
            return Haste.AT_ONCE
        free_tokens, free_nano = _find_room(plan, windows)
    else:
        if plan.leases and calls.free_places < NEAR:
            return Haste.AT_ONCE
        if calls.heard != heard:
            calls.heard = heard
            calls.free_tokens, calls.free_nano = _find_room(plan, windows)
        free_tokens, free_nano = calls.free_tokens, calls.free_nano
    tokens = NEAR * (claim.input_tokens + claim.output_tokens)
    if tokens > free_tokens or NEAR * claim.hold_nano > free_nano:
        return Haste.AT_ONCE
    return Haste.PATIENT


def _find_room(plan: ResolvedPlan, windows: tuple[WindowState, ...]) -> tuple[float, float]:
    """Return how many tokens, and how much money, there is room for at least."""
    buckets = plan.token_buckets
    return (
        min([bucket.amount - bucket.level for bucket in buckets], default=inf),
        min([window.amount - window.used for window in windows if window.is_hard], default=inf),
    )
