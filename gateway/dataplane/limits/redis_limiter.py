"""The limiter of many workers: one Lua script a decision, counters shared through Redis.

Each worker keeps a :class:`Book`: what it holds and has charged itself, and how
the buckets stood when it last heard. Redis holds the same per worker (``held:`` and ``unposted:``
fields, leases): the sum of all is known to every decision, and a worker can write its part back when
Redis may have lost it. While Redis is away the book decides, with this worker's share of everything.

On one connection every call is carried out exactly once and in order, so a hold is added and given
back as a difference. What follows a broken connection is absolute, and late calls of an older one
are refused by their epoch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from hiredis import ReplyError

from gateway.dataplane.limits.book import Book
from gateway.dataplane.limits.clocks import monotonic_us, wall_us
from gateway.dataplane.limits.encode_plan import EncodedPlan
from gateway.dataplane.limits.membership import Membership, Places
from gateway.dataplane.limits.own_part import OwnPart
from gateway.dataplane.limits.redis_admit import FEW, Admissions
from gateway.dataplane.limits.redis_scripts import STALE, RedisScripts
from gateway.dataplane.limits.redis_settle import Settlements, find_haste
from gateway.dataplane.limits.redis_top_up import TopUps
from gateway.dataplane.limits.resp_connection import Haste

if TYPE_CHECKING:
    from billing.budgets.spend_feed import SpendFeed
    from gateway.dataplane.limits.left_charges import LeftJournal
    from gateway.dataplane.limits.resolved_plan import Held, ResolvedPlan
    from gateway.dataplane.limits.types import Claim, LimitPlan, Outcome
    from gateway.snapshot.model import Budget, Snapshot

DECISION_SECONDS = 0.1  # Redis answers within it, or is away


class RedisLimiter:
    """Decides together with others; see :class:`gateway.dataplane.limits.types.Limiter`.

    ``workers``: how many there are at least. ``on_places`` hears of each change of
    :class:`Places`. ``now_us`` is for tests; 0: the server's own clock.
    """

    def __init__(
        self,
        url: str,
        journal_id: str,
        *,
        workers: int = 1,
        decision_seconds: float = DECISION_SECONDS,
        monotonic_us: Callable[[], int] = monotonic_us,
        wall_us: Callable[[], int] = wall_us,
        now_us: Callable[[], int] = lambda: 0,
        on_places: Callable[[Places], None] = lambda _: None,
    ) -> None:
        self._book = Book(journal_id, monotonic_us=monotonic_us, wall_us=wall_us)
        self._wall_us = wall_us
        self._now_us = now_us
        self._scripts = RedisScripts(journal_id)
        self._epoch = self._scripts.epoch
        self._stamp = 0
        self._own = OwnPart(
            self._scripts, self._book, now_us=now_us, monotonic_us=monotonic_us, wall_us=wall_us
        )
        self._membership = Membership(
            url,
            self._scripts,
            self._own,
            self._book,
            workers=workers,
            timeout_seconds=decision_seconds,
            now_us=now_us,
            on_change=self._on_change,
            on_places=on_places,
        )
        self.find_posted = self._book.find_posted
        self.find_connection = lambda: self._membership.connection  # None: Redis is away
        with_all = (self._book, self._membership, self._scripts)
        self._top_ups = TopUps(
            *with_all, now_us=now_us, calls_for=self._calls_for, look_after=self._look_after
        )
        self._settlements = Settlements(
            *(*with_all, self._own),
            now_us=now_us,
            calls_for=self._calls_for,
            look_after=self._look_after,
        )
        self._own.before_money = self._settlements.flush
        self._admissions = Admissions(
            *(*with_all, self._own),
            clocks=(monotonic_us, wall_us, now_us),
            calls_for=self._calls_for,
            look_after=self._look_after,
            undo=self.undo,
            tell_beside=self._settlements.flush_beside,
        )

    @property
    def is_shared(self) -> bool:
        """Whether decisions are made through Redis at the moment."""
        return self._membership.connection is not None

    @property
    def is_ready(self) -> bool:
        """Whether they are, and every worker has written back what is its own."""
        return self.is_shared and self._membership.is_ready

    async def start(self) -> None:
        """Connect; returns when that has succeeded or failed once. Retried until :meth:`close`."""
        await self._membership.start()

    async def close(self) -> None:
        """Send what is due, leave the other workers, and let go of the connection."""
        self._settlements.flush()
        await self._membership.stop()

    def admit(self, claim: Claim) -> Awaitable[Outcome]:
        """Decide on a claim, all or nothing."""
        return self._admissions.ask(claim)

    def peek(self, plan: LimitPlan) -> Outcome:
        """Return how a plan stood when this worker last heard, less what has drained since."""
        return self._book.peek(plan)

    def _calls_for(self, plan: ResolvedPlan, started_at_us: int) -> EncodedPlan:
        calls = plan.encoded
        if (
            isinstance(calls, EncodedPlan)
            and calls.stamp == self._stamp
            and calls.starts_us <= started_at_us < calls.ends_us
        ):
            return calls
        plan.encoded = calls = EncodedPlan(
            plan,
            plan.find_windows(started_at_us),
            self._scripts,
            stamp=self._stamp,
            version=self._own.version,
            now_us=self._now_us() or self._wall_us(),
            share=self._membership.share,
            is_to_wait=self._book.counters.money_share == 0.0,
        )
        return calls

    def _look_after(self, epoch: int, reply: Any) -> None:
        """Write everything back, or give Redis up, as an answer without a decision asks for."""
        if reply == STALE:
            if epoch == self._scripts.epoch:
                self._membership.rejoin()
        elif reply is not None:
            self._membership.fail(str(reply) if isinstance(reply, ReplyError) else "strange answer")

    async def top_up(self, claim: Claim, *, output_tokens: int, hold_nano: int) -> Budget | None:
        """Reserve more for a running request; return the hard budget without room for it."""
        return await self._top_ups.ask(claim, output_tokens, hold_nano)

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
        plan = held[0]
        haste = find_haste(claim, plan, held[1], self._book.heard)
        is_summed = haste is Haste.PATIENT and self._admissions.open > FEW and not plan.leases
        if is_summed and self._membership.connection:
            self._admissions.open -= 1
            self._settlements.add(claim, input_tokens, output_tokens, charge_nano, journal_point)
            return
        corrections = (0, input_tokens - claim.input_tokens, output_tokens - claim.output_tokens)
        self._book.settle(claim, input_tokens, output_tokens, charge_nano, journal_point)
        self._tell_settled(claim, plan, corrections, haste)

    def undo(self, claim: Claim) -> None:
        """Take an admission back whole: nobody waited for it."""
        if claim.state is None:
            return
        plan, windows, _ = cast("Held", claim.state)
        haste = find_haste(claim, plan, windows, self._book.heard)
        self._book.undo(claim)
        back = (-1, -claim.input_tokens, -claim.output_tokens)
        self._tell_settled(claim, plan, back, haste)

    def _tell_settled(
        self,
        claim: Claim,
        plan: ResolvedPlan,
        corrections: tuple[int, int, int],
        haste: Haste,
    ) -> None:
        self._admissions.open -= 1
        if plan.leases:
            self._own.running.pop(claim.request_id, None)
        self._settlements.tell(claim, plan, corrections, haste)

    def use_snapshot(self, snapshot: Snapshot) -> None:
        """Take changed amounts; what was used stays used."""
        self._book.use_snapshot(snapshot)
        self._forget_calls()

    def use_feed(self, feed: SpendFeed) -> None:
        """Take what the ledger knows; Redis hears its sum before what is no longer unposted."""
        self._settlements.flush()  # as things stood: the ledger's sum is raised first
        covered = self._book.take_feed(feed)
        if covered is not None:
            self._forget_calls()
            self._membership.write(self._own.money(covered))

    def count_left(self, left: LeftJournal) -> None:
        """Count what a journal holds that no budget here has heard of, until a feed covers it."""
        self._book.count_left(left)
        self._membership.write(self._own.own_money())

    def renew_leases(self) -> None:
        """Renew the leases of running requests now, as the heartbeat does every ten seconds."""
        self._membership.write(self._own.leases())

    def _forget_calls(self) -> None:
        self._stamp += 1

    def _on_change(self) -> None:
        """Encode anew; what has not been told belongs to an epoch that may be over."""
        if self._scripts.epoch != self._epoch:
            self._epoch = self._scripts.epoch
            self._settlements.drop()
        self._forget_calls()
