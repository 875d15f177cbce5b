"""One HTTP/1.1 connection to an engine: an exchange at a time, on asyncio and httptools.

How it is used is told in :mod:`backends.http_pool`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import httptools

from backends.engine_reply import MAX_HEAD_BYTES, PAUSE_READING_BYTES, EngineReply
from backends.errors import MalformedReplyError, ReplyCutError, StaleConnectionError
from backends.known_head import KnownHead, learn_head
from backends.lone_chunk import LINES, MOST_BYTES, is_lone_chunk
from backends.write_queue import WriteQueue, WriteTarget

KNOWN_SECONDS = 0.05  # a reply's head is noted so often at most


class ConnectionOwner(Protocol):
    """What a connection needs of its pool."""

    writes: WriteQueue
    last_received_at: float  # on any of its connections; the event loop's clock
    known_head: KnownHead | None  # of a whole reply, as the engine writes them now, it seems
    known_at: float  # when that was noted

    def forget(self, connection: EngineConnection) -> None:
        """Drop an idle connection that the engine closed."""


class EngineConnection(EngineReply, asyncio.Protocol):
    """One connection; see the module for how it is used."""

    __slots__ = (
        "_endpoint",
        "_has_started",
        "_is_between_chunks",
        "_is_lost",
        "_target",
        "is_reused",
        "last_received_at",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, endpoint: ConnectionOwner) -> None:
        super().__init__(loop)
        self._endpoint = endpoint
        self._is_lost = False
        self._has_started = False
        self._is_between_chunks = False  # so the parser stands, for certain
        self.is_reused = False
        self.last_received_at = 0.0  # the event loop's clock

    # What the user of a connection calls.

    @property
    def is_reusable(self) -> bool:
        """Whether another exchange may follow on this connection."""
        return self._is_complete and self._keeps_alive and not self._is_lost and not self._chunks

    def send(self, head: bytes, body: bytes) -> asyncio.Future[None]:
        """Send a request; what is returned is done when the reply's status and headers are in.

        Raises :class:`StaleConnectionError`; the future raises that, :class:`ReplyCutError`,
        :class:`MalformedReplyError`, or what :meth:`abort` was given.
        """
        if self._is_lost:
            raise StaleConnectionError("The kept connection is closed.")
        self._line_bytes = 0
        self._is_complete = self._has_started = False
        self._is_busy = True
        self._head_waiter = waiter = self._loop.create_future()
        self.last_received_at = self._loop.time()
        if len(body) < 65536:
            self._endpoint.writes.write(self._target, head + body)
        else:
            self._endpoint.writes.flush()
            self._target.send_all((head, body))
        return waiter

    def abort(self, error: Exception) -> None:
        """End the exchange from outside: whoever waits gets ``error``, the engine a reset."""
        if self._is_complete:
            return
        self._fail(error)
        self.close()

    def forget_error(self) -> None:
        """Let go of what ended the exchange: its traceback holds everybody who waited for it."""
        self._error = None

    def close(self) -> None:
        """Close the connection at once, unsent and unread bytes included."""
        self._keeps_alive = False
        self._transport.abort()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport (asyncio's callback)."""
        self._transport = transport  # type: ignore[assignment]  # the loop hands a Transport
        self._target = WriteTarget(self._transport)

    def data_received(self, data: bytes) -> None:
        """Feed the parser (asyncio's callback)."""
        if not self._is_busy:  # an engine that speaks unasked cannot be trusted with the next
            self.close()
            return
        self.last_received_at = self._endpoint.last_received_at = self._loop.time()
        step = self._step
        if self._is_between_chunks:
            pass_on = self._pass_on
            if step is not None and (
                (pass_on is not None and pass_on(data)) or self._take_lone(step, data)
            ):
                return
            self._is_between_chunks = False
        is_first = not self._has_started
        if is_first:
            self._has_started = True
            if self._take_known(self._endpoint.known_head, data):
                return
        if not self._parse(data):
            return
        if self._chunks:
            if is_first and self._is_complete:
                self._note_head(data)
            if step is not None:
                chunk = self._take_chunks()
                self._is_between_chunks = not self._is_complete and is_lone_chunk(data, chunk)
                self._take_step(step, chunk)
                return
            self._keep(len(data))
        elif not self._is_complete:
            self._bound_lines(len(data))

    def _take_lone(self, step: Callable[[bytes], bool], data: bytes) -> bool:
        """Take a read that comes between two chunks if it is one; tell whether it is."""
        line = LINES[len(data)] if len(data) < MOST_BYTES else b""
        if not line or data[: len(line)] != line or data[-2:] != b"\r\n":
            return False
        self._take_step(step, data[len(line) : -2])
        return True

    def _parse(self, data: bytes) -> bool:
        """Feed the parser; tell whether to go on."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._is_complete:  # else the reply was whole; what follows it is nobody's
                self._fail(MalformedReplyError("The engine's reply is not valid HTTP."))
            self.close()
            return False
        return True

    def _keep(self, read_bytes: int) -> None:
        """Have what came read, and read on only while little is held."""
        self._buffered_bytes += read_bytes
        if self._waiter is not None:
            self._wake()
        if self._buffered_bytes > PAUSE_READING_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def _note_head(self, data: bytes) -> None:
        """Remember the head of a reply that is one read. It tells the time: it holds a second."""
        endpoint = self._endpoint
        is_due = self.last_received_at >= endpoint.known_at + KNOWN_SECONDS
        if is_due and self.status == 200 and self._keeps_alive:
            endpoint.known_at = self.last_received_at
            endpoint.known_head = learn_head(data, self.headers)

    def _bound_lines(self, read_bytes: int) -> None:
        """Bound what is no body: a head, the lines of chunks, trailers.

        A stream has many such lines between its pieces, and nothing is counted where those arrive.
        So at the bound its next piece is left to :meth:`read`, which begins the count anew.
        """
        self._line_bytes += read_bytes
        if self._line_bytes <= MAX_HEAD_BYTES:
            return
        if self._step is not None:
            self._step, self._line_bytes = None, 0
            self._wake()
            return
        self._fail(MalformedReplyError("The engine's reply has a head or trailers without an end."))
        self.close()

    def eof_received(self) -> bool:
        """Let asyncio close the transport (asyncio's callback)."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Tell whoever waits how the exchange ended (asyncio's callback)."""
        self._is_lost = True
        self._keeps_alive = False
        if self._is_busy and not self._is_complete:
            head_is_in = self._head_waiter is None or self._head_waiter.done()
            if head_is_in and not self._has_framing and error is None:
                self.on_message_complete()  # a body that the connection's end delimits
            elif not self._has_started and self.is_reused:
                self._fail(StaleConnectionError("The engine closed the kept connection."))
            else:
                self._fail(ReplyCutError("The engine's connection ended inside the reply."))
        self._endpoint.forget(self)
        del self._parser  # it holds this object: without it nothing waits for the collector
