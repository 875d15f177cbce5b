"""How a worker joins the others at Redis, stays among them, and comes back after an outage.

A server that is new or has lost its memory has another run id, or no generation: then its epochs are
gone too, every worker's next call is answered ``STALE``, and each writes back what is its own before
it asks again. Until all that were there before have done so, or ``GRACE_US`` is over, hard budgets and
places in flight are not given on the word of a Redis that does not know everybody: after an outage
a worker goes on with its own share of the money, after a mere loss of memory claims on money wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from hiredis import ReplyError

from gateway.dataplane.limits.bury_dead import bury_dead
from gateway.dataplane.limits.redis_scripts import (
    DEAD,
    REGISTRY,
    STALE,
    STATE,
    SWEEPER,
    WORKERS,
    RedisScripts,
)
from gateway.dataplane.limits.resp_connect import connect
from gateway.dataplane.limits.resp_connection import Haste, RedisAwayError, RespConnection

if TYPE_CHECKING:
    from gateway.dataplane.limits.book import Book
    from gateway.dataplane.limits.own_part import OwnPart

PROBE_SECONDS = 1.0
BEAT_SECONDS = 0.5  # so soon also an idle worker sees that Redis has lost its memory
MONEY_BEATS, LEASE_BEATS = 4, 20  # every so many, one's money is written, leases are renewed
HEARTBEAT_US = 15_000_000
GRACE_US = 5_000_000
WAIT_SECONDS = 0.05  # between two tries for money that others have to write back first
_UNREADY_BEAT_SECONDS = 0.1

_LOG = logging.getLogger(__name__)
_RUN_ID = re.compile(rb"^run_id:(\w+)", re.MULTILINE)


class Places(NamedTuple):
    """Which of how many living workers one is, over all hosts; the order is that of their ids.

    Known some seconds after a start or an orderly end, 15 s after a death; while Redis is away the
    last word stands.
    """

    workers: int
    number: int  # from 0


class Membership:
    """The connection of one worker, and whether decisions go through it."""

    def __init__(
        self,
        url: str,
        scripts: RedisScripts,
        own: OwnPart,
        book: Book,
        *,
        workers: int,
        timeout_seconds: float,
        now_us: Callable[[], int],
        on_change: Callable[[], None],
        on_places: Callable[[Places], None],
    ) -> None:
        self._url = url
        self._scripts = scripts
        self._own = own
        self._book = book
        self._timeout_seconds = timeout_seconds
        self._now_us = now_us
        self._on_change = on_change  # encoded calls no longer hold
        self._least_workers = max(1, workers)
        self.living = self._least_workers
        self.places = Places(self._least_workers, 0)
        self._on_places = on_places
        self.connection: RespConnection | None = None  # None: decisions are this worker's alone
        self.is_ready = False  # every worker has written back what is its own
        self._run_id = b"unknown"
        self._is_away = False  # and that has been logged
        self._is_lost = False  # just now, and perhaps nothing but the connection
        self._retried_at = -math.inf  # when one was tried again without a pause
        self._wake = asyncio.Event()
        self._tried = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._go_alone()

    @property
    def share(self) -> float:
        """The part of limits and money that is this worker's while it decides alone."""
        return 1.0 / max(self.living, self._least_workers)

    async def start(self) -> None:
        """Connect; return when that has succeeded or failed once."""
        self._task = asyncio.create_task(self._stay(), name="limits-redis")
        await self._tried.wait()

    async def stop(self) -> None:
        """Leave the others and let go of the connection."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        connection = self.connection
        if connection is not None:
            with contextlib.suppress(RedisAwayError):
                await connection.ask_raw(self._scripts.call("leave", (STATE, WORKERS, DEAD)))
            self._is_away = True  # and nothing to log
            connection.close()

    def rejoin(self) -> None:
        """Write back everything: the server does not know this worker any more."""
        if self.connection is None:
            return
        if self.is_ready:
            self.is_ready = False
            self._book.counters.split_money(0.0)  # claims wait, half a second at most mostly
        _LOG.warning("limits: Redis does not know this worker any more; writing back what is ours")
        self._join(self.connection)
        self._wake.set()

    def fail(self, reason: str) -> None:
        """Give the connection up: it answers with errors."""
        if self.connection is not None:
            self.connection.close(reason)

    async def _stay(self) -> None:
        while True:
            connection: RespConnection | None = None
            try:
                connection = await self._connect()
                self._enter(connection)
                self._tried.set()
                await self._beat(connection)
            except RedisAwayError as error:
                if connection is not None:
                    connection.close(str(error))
                self._say_away(str(error))
            finally:
                self._tried.set()
            if not self._is_to_try_at_once():
                await asyncio.sleep(PROBE_SECONDS)

    def _is_to_try_at_once(self) -> bool:
        """Tell whether only the connection may be gone; of servers that end each, once a second."""
        is_lost, self._is_lost = self._is_lost, False
        now = asyncio.get_running_loop().time()
        if not is_lost or now - self._retried_at < PROBE_SECONDS:
            return False
        self._retried_at = now
        return True

    async def _connect(self) -> RespConnection:
        connection = await connect(
            self._url,
            timeout_seconds=self._timeout_seconds,
            probe_key=STATE,
            on_lost=self._on_lost,
        )
        try:
            # INFO may be forbidden; a lost line shows next.
            with contextlib.suppress(RedisAwayError):
                found = _RUN_ID.search(await connection.ask(b"INFO", b"server"))
                self._run_id = found[1] if found else b"unknown"
            for text in self._scripts.texts.values():
                await connection.ask(b"SCRIPT", b"LOAD", text)
        except BaseException:
            connection.close("given up")
            raise
        return connection

    def _enter(self, connection: RespConnection) -> None:
        """Write back everything and decide through Redis from here on, without a gap between."""
        self._book.counters.scale(1.0)
        self.connection = connection
        self._join(connection)

    def _join(self, connection: RespConnection) -> None:
        self._scripts.epoch += 1
        self._on_change()
        expected = b"%d" % max(self.living, self._least_workers)
        join = self._scripts.call(
            "join", (STATE, WORKERS, DEAD), self._run_id, expected, b"%d" % self._now_us()
        )
        self.queue(connection, join)
        for payload in self._own.everything():
            self.queue(connection, payload)
        connection.send(self._beat_call(), self._on_beat, None)
        connection.flush()

    def queue(self, connection: RespConnection, payload: bytes) -> None:
        """Send a call whose answer only says whether the server still knows this worker."""
        connection.send(payload, self.on_word, self._scripts.epoch, Haste.PATIENT)

    def on_word(self, epoch: int, reply: Any) -> None:
        """See from an answer whether the server still knows this worker."""
        if reply == STALE:
            if epoch == self._scripts.epoch:
                self.rejoin()
        elif isinstance(reply, ReplyError):
            self.fail(str(reply))

    def _beat_call(self) -> bytes:
        return self._scripts.call(
            "beat",
            (STATE, WORKERS, DEAD, REGISTRY, SWEEPER),
            *(b"%d" % self._now_us(), b"%d" % HEARTBEAT_US, b"%d" % GRACE_US),
        )

    def _on_beat(self, _: None, reply: Any) -> None:
        if isinstance(reply, list):
            self._take_beat(reply)
        else:
            self.on_word(self._scripts.epoch, reply)

    def _take_beat(self, reply: list[Any]) -> None:
        if self._is_away:
            self._is_away = False
            _LOG.warning("limits: Redis is back")
        is_ready = reply[0] == 1
        self.living = max(1, reply[1]) if is_ready else max(self.living, reply[1])
        if is_ready and (self.living, reply[4]) != (self.places.workers, self.places.number):
            self.places = Places(self.living, min(reply[4], self.living - 1))
            self._on_places(self.places)
        if is_ready and not self.is_ready:
            self.is_ready = True
            self._book.counters.split_money(1.0)
            self._on_change()

    async def _beat(self, connection: RespConnection) -> None:
        beats = 0
        while not connection.is_lost:
            reply = await connection.ask_raw(self._beat_call())
            if isinstance(reply, list):
                self._take_beat(reply)
                if reply[3] == 1:
                    await bury_dead(connection, self._scripts, self._book.counters.feed, reply[2])
            else:
                self.on_word(self._scripts.epoch, reply)
            beats += 1
            if self.is_ready and beats % MONEY_BEATS == 0:
                self._book.counters.turn_peaks()
                for payload in self._own.own_money():
                    self.queue(connection, payload)
                if beats % LEASE_BEATS == 0:
                    for payload in self._own.leases():
                        self.queue(connection, payload)
            seconds = BEAT_SECONDS if self.is_ready else _UNREADY_BEAT_SECONDS
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
        raise RedisAwayError("The connection has ended.")

    def write(self, payloads: Iterable[bytes]) -> None:
        """Send calls that write back what is ours, if there is a connection."""
        if self.connection is not None:
            for payload in payloads:
                self.queue(self.connection, payload)

    def _on_lost(self, reason: str) -> None:
        self._wake.set()
        if self.connection is not None:
            self._is_lost = True
            self._own.remember()
            self.connection = None
            self._go_alone()
            self._say_away(reason)

    def _go_alone(self) -> None:
        """Decide by this worker's own share from here on."""
        counters = self._book.counters
        if self.is_ready or counters.money_share in (0.0, 1.0):
            counters.split_money(self.share)
        self.is_ready = False
        counters.scale(self.share)
        self._on_change()

    def _say_away(self, reason: str) -> None:
        if not self._is_away:
            self._is_away = True
            _LOG.warning(
                "limits: Redis is away (%s); deciding alone, with 1/%d of limits and money",
                reason,
                max(self.living, self._least_workers),
            )
