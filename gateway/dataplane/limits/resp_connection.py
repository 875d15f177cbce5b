"""One connection to Redis for calls that are counted in microseconds: RESP over asyncio.

Calls are answered in the order in which they were queued, each to its own callback, and written
together, as each asks for (:class:`Haste`): at once when nothing is under way; under load at most
once in three milliseconds; a call that nobody waits for may wait longer for company. redis-py
needs 60 us of CPU for one call; this one about 10.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, cast

from hiredis import HiredisError, Reader, ReplyError

GATHER_SECONDS = 0.003
PATIENT_SECONDS = 0.005
_LATE_LOOP_SECONDS = 0.01
_INCOMPLETE = object()

OnReply = Callable[[Any, Any], None]  # context, reply; the reply of a lost connection is None


class Haste(Enum):
    """When a queued call is written; whatever is queued then is written with it."""

    AT_ONCE = 0  # or with the next answer, at the latest after GATHER_SECONDS
    GATHERED = 1  # at once where nothing was written in the last GATHER_SECONDS, else after them
    PATIENT = 2  # within PATIENT_SECONDS
    NEXT = 3  # with what is about to be written


class RedisAwayError(Exception):
    """Redis cannot be reached, does not answer in time, or answers with an error."""


def bulk(value: bytes) -> bytes:
    """Return one argument as RESP."""
    return b"$%d\r\n%b\r\n" % (len(value), value)


def command(*arguments: bytes) -> bytes:
    """Return one command as RESP."""
    return b"*%d\r\n%b" % (len(arguments), b"".join(map(bulk, arguments)))


class RespConnection(asyncio.Protocol):
    """One connection; ``on_lost`` is called once, when it has ended for whatever reason."""

    def __init__(self, *, timeout_seconds: float, on_lost: Callable[[str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout_seconds = timeout_seconds
        self._on_lost = on_lost
        self._reader = Reader(notEnoughData=_INCOMPLETE)
        self._transport: asyncio.Transport | None = None
        self._queue: list[bytes] = []
        self._makers: list[Callable[[], None]] = []  # of calls that are made when they are written
        self._waiting: deque[tuple[OnReply, Any]] = deque()
        self._batches: deque[tuple[int, float]] = deque()  # how many calls each, and sent when
        self._answered = 0  # of the oldest batch
        # Neither is cancelled by a flush: one that comes early writes what is there, or nothing.
        self._gather: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._flushed_at = 0.0
        self._is_urgent = False  # what is queued goes with the next answer
        self._watchdog: asyncio.TimerHandle | None = None
        self.is_lost = False

    def send(
        self, payload: bytes, on_reply: OnReply, context: Any, haste: Haste = Haste.AT_ONCE
    ) -> None:
        """Queue one call. A reply may be a ``ReplyError``, and is None if the connection ends."""
        if self.is_lost:
            on_reply(context, None)
            return
        self._queue.append(payload)
        self._waiting.append((on_reply, context))
        if haste is Haste.NEXT:
            return
        if haste is Haste.PATIENT:
            if self._patience is None:
                self._patience = self._loop.call_later(PATIENT_SECONDS, self._end_patience)
            return
        if haste is Haste.AT_ONCE:
            if not self._batches:
                self.flush()
                return
            self._is_urgent = True
        elif self._gather is None and self._loop.time() - self._flushed_at >= GATHER_SECONDS:
            self.flush()
            return
        if self._gather is None:
            self._gather = self._loop.call_later(GATHER_SECONDS, self._end_gathering)

    def gather(self, make: Callable[[], None]) -> None:
        """Have ``make`` called once, where calls are written next: it sends what it has then.

        As soon as a call that is :attr:`Haste.GATHERED`; at once on a connection that has ended.
        """
        if self.is_lost:
            make()
            return
        self._makers.append(make)
        if self._gather is None:
            waited = self._loop.time() - self._flushed_at
            if waited >= GATHER_SECONDS:
                self.flush()
            else:
                self._gather = self._loop.call_later(GATHER_SECONDS, self._end_gathering)

    def now(self) -> float:
        """Return the event loop's time."""
        return self._loop.time()

    def _end_gathering(self) -> None:
        self._gather = None
        self.flush()

    def _end_patience(self) -> None:
        self._patience = None
        self.flush()

    def flush(self) -> None:
        """Write what is queued."""
        self._is_urgent = False
        if self._transport is None:
            return
        if self._makers:
            makers, self._makers = self._makers, []
            for make in makers:
                make()
        if not self._queue:
            return
        now = self._flushed_at = self._loop.time()
        self._batches.append((len(self._queue), now))
        self._transport.write(b"".join(self._queue))
        self._queue.clear()
        if self._watchdog is None:
            self._watchdog = self._loop.call_later(self._timeout_seconds, self._look)

    async def ask(self, *arguments: bytes) -> Any:
        """Send one command and wait for its reply. Raises :class:`RedisAwayError`."""
        return await self.ask_raw(command(*arguments))

    async def ask_raw(self, payload: bytes) -> Any:
        """Send one encoded command and wait for its reply. Raises :class:`RedisAwayError`."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.send(payload, _resolve, future)
        reply = await future
        if reply is None and self.is_lost:
            raise RedisAwayError("The connection has ended.")
        if isinstance(reply, ReplyError):
            raise RedisAwayError(str(reply)) from reply
        return reply

    def close(self, reason: str = "closed") -> None:
        """End the connection; calls without an answer get None."""
        if self.is_lost:
            return
        self.is_lost = True
        if self._transport is not None:
            self._transport.abort()
        for timer in (self._gather, self._patience, self._watchdog):
            if timer is not None:
                timer.cancel()
        self._gather = self._patience = self._watchdog = None
        # First everybody hears that it is gone: whoever asks again is not sent here.
        self._on_lost(reason)
        makers, self._makers = self._makers, []
        for make in makers:
            make()
        while self._waiting:
            on_reply, context = self._waiting.popleft()
            on_reply(context, None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (asyncio.Protocol)."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Hand each reply to the callback of its call (asyncio.Protocol)."""
        try:
            self._reader.feed(data)
            reply = self._reader.gets()
            while reply is not _INCOMPLETE:
                if not self._batches:
                    self.close("it answers what nobody asked for")
                    return
                on_reply, context = self._waiting.popleft()
                self._count_answer()
                on_reply(context, reply)
                if self.is_lost:  # given up for this answer: nobody waits for those behind it
                    return
                reply = self._reader.gets()
        except HiredisError as error:
            self.close(f"it does not speak RESP ({error})")
            return
        if self._is_urgent:
            self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody (asyncio.Protocol)."""
        self.close("the connection was lost" if exc is None else type(exc).__name__)

    def _count_answer(self) -> None:
        self._answered += 1
        if self._answered >= self._batches[0][0]:
            self._batches.popleft()
            self._answered = 0

    def _look(self, *, is_second_look: bool = False) -> None:
        """End a connection that has not answered in time."""
        self._watchdog = None
        if not self._batches:
            return
        age = self._loop.time() - self._batches[0][1]
        if age < self._timeout_seconds:
            self._watchdog = self._loop.call_later(self._timeout_seconds - age, self._look)
        elif not is_second_look:
            # It may be this loop that was late: what has arrived is read before the second look.
            self._watchdog = self._loop.call_later(
                _LATE_LOOP_SECONDS, lambda: self._look(is_second_look=True)
            )
        else:
            self.close(f"no answer within {self._timeout_seconds * 1000:.0f} ms")


def _resolve(future: asyncio.Future[Any], reply: Any) -> None:
    if not future.done():
        future.set_result(reply)
