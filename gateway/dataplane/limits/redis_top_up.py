"""Reserving more for a running request, through Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from gateway.dataplane.limits.membership import WAIT_SECONDS
from gateway.dataplane.limits.resp_connection import Haste

if TYPE_CHECKING:
    from gateway.dataplane.limits.book import Book
    from gateway.dataplane.limits.encode_plan import EncodedPlan
    from gateway.dataplane.limits.membership import Membership
    from gateway.dataplane.limits.redis_scripts import RedisScripts
    from gateway.dataplane.limits.resolved_plan import Held, ResolvedPlan
    from gateway.dataplane.limits.types import Claim
    from gateway.snapshot.model import Budget


class _AskedMore(NamedTuple):
    """A top-up under way."""

    claim: Claim
    calls: EncodedPlan
    epoch: int
    future: asyncio.Future[Budget | None]
    more: tuple[int, int]  # output tokens and nano


class TopUps:
    """Top-ups of one limiter."""

    def __init__(
        self,
        book: Book,
        membership: Membership,
        scripts: RedisScripts,
        *,
        now_us: Callable[[], int],
        calls_for: Callable[[ResolvedPlan, int], EncodedPlan],
        look_after: Callable[[int, Any], None],
    ) -> None:
        self._book = book
        self._membership = membership
        self._scripts = scripts
        self._now_us = now_us
        self._calls_for = calls_for
        self._look_after = look_after

    async def ask(self, claim: Claim, output_tokens: int, hold_nano: int) -> Budget | None:
        """Return the hard budget without room for it, else None: it was taken.

        Cancelled, the answer still counts: the claim has grown, and its settlement gives it back.
        """
        if self._membership.connection is None or claim.state is None:
            return self._book.top_up(claim, output_tokens=output_tokens, hold_nano=hold_nano)
        future: asyncio.Future[Budget | None] = asyncio.get_running_loop().create_future()
        self._send(claim, (output_tokens, hold_nano), future)
        return await future

    def _send(
        self, claim: Claim, more: tuple[int, int], future: asyncio.Future[Budget | None]
    ) -> None:
        connection = self._membership.connection
        if connection is None or claim.state is None:
            struck = self._book.top_up(claim, output_tokens=more[0], hold_nano=more[1])
            if not future.done():
                future.set_result(struck)
            return
        calls = self._calls_for(cast("Held", claim.state)[0], claim.started_at_us)
        for window in calls.windows:
            window.pending += 1
        asked = _AskedMore(claim, calls, self._scripts.epoch, future, more)
        payload = calls.top_up(self._now_us(), *more)
        connection.send(payload, self._on_reply, asked, Haste.GATHERED)

    def _on_reply(self, asked: _AskedMore, reply: Any) -> None:
        claim, calls, epoch, future, more = asked
        for window in calls.windows:
            window.pending -= 1
        if type(reply) is not int:
            self._look_after(epoch, reply)
            self._send(claim, more, future)
            return
        connection = self._membership.connection
        if reply and connection is not None and self._book.counters.money_share == 0.0:
            # Others have yet to say what they hold, for a moment; the stream goes on meanwhile.
            asyncio.get_running_loop().call_later(WAIT_SECONDS, self._send, claim, more, future)
            return
        if reply == 0 and claim.state is not None:
            self._book.take_more(claim, output_tokens=more[0], hold_nano=more[1])
        elif reply == 0 and connection is not None:  # settled meanwhile: it goes back
            back = calls.settle(claim.request_id, self._now_us(), (0, 0, -more[0]), more[1])
            self._membership.queue(connection, back)
        if not future.done():
            future.set_result(calls.windows[reply - 1].owner.budget if reply else None)
