"""Decisions through Redis: asked for alone at once, or gathered under load; and what comes of them.

Claims on one plan that are gathered are asked for as one, their sums all or nothing: admitted together
they are what they would have been one after the other. Refused together, each is asked for by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from gateway.dataplane.limits.membership import WAIT_SECONDS
from gateway.dataplane.limits.read_answer import REFUSED, read_admitted, read_refused
from gateway.dataplane.limits.redis_scripts import STALE
from gateway.dataplane.limits.resp_connection import Haste

if TYPE_CHECKING:
    from gateway.dataplane.limits.book import Book
    from gateway.dataplane.limits.encode_plan import EncodedPlan
    from gateway.dataplane.limits.membership import Membership
    from gateway.dataplane.limits.own_part import OwnPart
    from gateway.dataplane.limits.redis_scripts import RedisScripts
    from gateway.dataplane.limits.resolved_plan import Held, ResolvedPlan
    from gateway.dataplane.limits.resp_connection import RespConnection
    from gateway.dataplane.limits.types import Claim, Outcome, Refusal

FEW = 8  # requests that run here; with more, decisions are gathered before they are asked for
_ALONE_SECONDS = 0.1  # after a refusal: some limit of the plan is near

# A claim and who waits for the decision on it.
_Waiting = tuple["Claim", "asyncio.Future[Outcome]"]
# A decision under way: on what, by which calls, at which epoch, and whether it is the last word.
_Asked = tuple[list[_Waiting], "EncodedPlan", int, bool]


class _Group:
    """Claims on one plan in the same windows."""

    __slots__ = ("ends_us", "starts_us", "waiting")

    def __init__(self, calls: EncodedPlan, waiting: list[_Waiting]) -> None:
        self.starts_us, self.ends_us = calls.starts_us, calls.ends_us
        self.waiting = waiting

    def takes(self, claim: Claim) -> bool:
        return self.starts_us <= claim.started_at_us < self.ends_us


class Admissions:
    """The decisions of one limiter."""

    def __init__(
        self,
        book: Book,
        membership: Membership,
        scripts: RedisScripts,
        own: OwnPart,
        *,
        clocks: tuple[Callable[[], int], Callable[[], int], Callable[[], int]],
        calls_for: Callable[[ResolvedPlan, int], EncodedPlan],
        look_after: Callable[[int, Any], None],
        undo: Callable[[Claim], None],
        tell_beside: Callable[[ResolvedPlan], bool],
    ) -> None:
        """``clocks``: monotonic, wall, and a test's own time (0: the server's), microseconds.

        ``tell_beside`` tells Redis what has ended beside a plan; whether there was any.
        """
        self._book = book
        self._membership = membership
        self._scripts = scripts
        self._own = own
        self._monotonic_us, self._wall_us, self._now_us = clocks
        self._calls_for = calls_for
        self._look_after = look_after
        self._undo = undo
        self._tell_beside = tell_beside
        self._groups: dict[ResolvedPlan, _Group] = {}  # gathered, not asked for yet
        self.open = 0  # claims that were admitted and are not settled

    async def ask(self, claim: Claim) -> Outcome:
        """Decide on a claim, all or nothing. A cancelled wait leaves nothing claimed."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._ask(claim, future)
        try:
            return await future
        except BaseException:
            # Before the answer, which then finds it so; or before this task's turn to see it.
            if not future.done():
                future.cancel()
            elif not future.cancelled() and future.exception() is None:
                self._undo(claim)
            raise

    def _ask(
        self, claim: Claim, future: asyncio.Future[Outcome], *, is_alone: bool = False
    ) -> None:
        connection = self._membership.connection
        if connection is None:
            self._answer(claim, future, self._decide_alone(claim))
            return
        counters = self._book.counters
        plan = counters.plans.get(claim.plan) or counters.resolve(claim.plan)
        group = self._groups.get(plan)
        if group is not None and not is_alone and group.takes(claim):
            group.waiting.append((claim, future))
            return
        calls = self._calls_for(plan, claim.started_at_us)
        if self.open <= FEW:
            self._send(connection, calls, [(claim, future)], Haste.AT_ONCE, is_last=is_alone)
        elif is_alone or plan.leases or connection.now() < calls.alone_until:
            self._send(connection, calls, [(claim, future)], Haste.GATHERED, is_last=is_alone)
        else:
            if group is not None:  # in other windows
                self._send_groups()
            self._groups[plan] = _Group(calls, [(claim, future)])
            connection.gather(self._send_groups)

    def _decide_alone(self, claim: Claim) -> Outcome:
        outcome = self._book.admit(claim)
        if claim.state is not None:
            self._note_admitted(claim, cast("Held", claim.state)[0])
        return outcome

    def _note_admitted(self, claim: Claim, plan: ResolvedPlan) -> None:
        self.open += 1
        if plan.leases:
            self._own.running[claim.request_id] = claim

    def _send_groups(self) -> None:
        """Ask for all that was gathered: called where a connection writes, or has ended."""
        groups, self._groups = self._groups, {}
        connection = self._membership.connection
        for plan, group in groups.items():
            waiting = [(claim, future) for claim, future in group.waiting if not future.done()]
            if connection is None:
                for claim, future in waiting:
                    self._ask(claim, future)
            elif waiting:
                # The Snapshot may have changed; the windows of the first are those of all.
                calls = self._calls_for(plan, waiting[0][0].started_at_us)
                self._send(connection, calls, waiting, Haste.NEXT)

    def _send(
        self,
        connection: RespConnection,
        calls: EncodedPlan,
        waiting: list[_Waiting],
        haste: Haste,
        *,
        is_last: bool = False,
    ) -> None:
        number = len(waiting)
        for window in calls.windows:
            window.pending += number
        payload = calls.admit([claim for claim, _ in waiting], self._now_us())
        asked: _Asked = (waiting, calls, self._scripts.epoch, is_last)
        connection.send(payload, self._on_reply, asked, haste)

    def _on_reply(self, asked: _Asked, reply: Any) -> None:
        waiting, calls, _, is_last = asked
        number = len(waiting)
        for window in calls.windows:
            window.pending -= number
        if type(reply) is not bytes or reply == STALE:
            self._ask_after_loss(asked, reply)
        elif reply[0] != REFUSED:
            outcome = read_admitted(
                self._book,
                [claim for claim, _ in waiting],
                calls,
                reply,
                monotonic_us=self._monotonic_us(),
            )
            self.open += number
            if calls.plan.leases:  # of one claim
                self._own.running[waiting[0][0].request_id] = waiting[0][0]
            for claim, future in waiting:
                if future.done():
                    self._undo(claim)
                else:
                    future.set_result(outcome)
        elif not is_last and (self._tell_beside(calls.plan) or number > 1):
            # By itself, and behind what has ended meanwhile: it may have made room.
            calls.alone_until = asyncio.get_running_loop().time() + _ALONE_SECONDS
            for claim, future in waiting:
                self._ask_again(claim, future, is_alone=True)
        else:
            self._take_refusal(waiting[0], calls, reply)

    def _ask_after_loss(self, asked: _Asked, reply: Any) -> None:
        waiting, calls, epoch, _ = asked
        for claim, _ in waiting:
            self._own.note_end(claim.request_id, calls.plan)  # what a lost call may have begun
        left = [(claim, future) for claim, future in waiting if not future.cancelled()]
        if left:
            self._look_after(epoch, reply)
        for claim, future in left:
            self._ask(claim, future)

    def _take_refusal(self, waiting: _Waiting, calls: EncodedPlan, reply: bytes) -> None:
        claim, future = waiting
        if calls is not self._calls_for(calls.plan, claim.started_at_us):
            # By amounts that may be others by now: what struck could not even be named.
            self._ask_again(claim, future)
            return
        outcome = read_refused(
            self._book,
            claim,
            calls,
            reply,
            monotonic_us=self._monotonic_us(),
            wall_us=self._wall_us(),
        )
        if outcome.refusal is None:  # never so
            return
        if self._is_to_wait(outcome.refusal) and not future.done():
            asyncio.get_running_loop().call_later(WAIT_SECONDS, self._ask_again, claim, future)
            return
        self._answer(claim, future, outcome)

    def _is_to_wait(self, refusal: Refusal) -> bool:
        """Tell whether a claim on money was refused only because others have yet to write back."""
        is_shared = self._membership.connection is not None
        return refusal.is_share and is_shared and not self._membership.is_ready

    def _ask_again(
        self, claim: Claim, future: asyncio.Future[Outcome], *, is_alone: bool = False
    ) -> None:
        if not future.done():
            self._ask(claim, future, is_alone=is_alone)

    def _answer(self, claim: Claim, future: asyncio.Future[Outcome], outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)
        elif outcome.refusal is None:
            self._undo(claim)
