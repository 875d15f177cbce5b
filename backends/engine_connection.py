"""One HTTP/1.1 connection to an engine: an exchange at a time, on asyncio and httptools.

How it is used is told in :mod:`backends.http_pool`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

import httptools

from backends.errors import (
    MalformedReplyError,
    ReplyCutError,
    ReplyTooLargeError,
    StaleConnectionError,
)
from backends.write_queue import WriteQueue, WriteTarget

PAUSE_READING_BYTES = 1024 * 1024


class ConnectionOwner(Protocol):
    """What a connection needs of its pool."""

    writes: WriteQueue

    def forget(self, connection: EngineConnection) -> None:
        """Drop an idle connection that the engine closed."""


class EngineConnection(asyncio.Protocol):
    """One connection; see the module for how it is used."""

    __slots__ = (
        "_buffered_bytes",
        "_chunks",
        "_endpoint",
        "_error",
        "_has_framing",
        "_has_started",
        "_head_waiter",
        "_is_busy",
        "_is_complete",
        "_is_informational",
        "_is_lost",
        "_is_paused",
        "_keeps_alive",
        "_loop",
        "_parser",
        "_target",
        "_transport",
        "_waiter",
        "headers",
        "is_reused",
        "last_received_at",
        "on_body",
        "status",
    )

    _transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop, endpoint: ConnectionOwner) -> None:
        self._loop = loop
        self._endpoint = endpoint
        self._chunks: deque[bytes] = deque()
        # The parser hands pieces of the body straight to the deque; a stream has thousands.
        self.on_body = self._chunks.append
        self._parser = httptools.HttpResponseParser(self)
        self._buffered_bytes = 0
        self._error: Exception | None = None
        self._head_waiter: asyncio.Future[None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._is_busy = False
        self._is_complete = True
        self._is_informational = False
        self._is_lost = False
        self._is_paused = False
        self._has_started = False
        self._has_framing = False
        self._keeps_alive = True
        self.headers: dict[bytes, bytes] = {}  # lower-case names; a repeated name keeps the last
        self.is_reused = False
        self.last_received_at = 0.0  # the event loop's clock
        self.status = 0

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
        self.headers = {}
        self._error = None
        self._is_complete = self._has_started = self._has_framing = False
        self._is_busy = True
        self._head_waiter = waiter = self._loop.create_future()
        self.last_received_at = self._loop.time()
        if len(body) < 65536:
            self._endpoint.writes.write(self._target, head + body)
        else:
            self._endpoint.writes.flush()
            self._transport.writelines((head, body))
        return waiter

    async def read(self) -> bytes:
        """Return all that has arrived of the body, waiting for some; b"" at the body's end.

        Raises :class:`ReplyCutError`, :class:`MalformedReplyError`, or what :meth:`abort` was
        given; what arrived before the error is returned first.
        """
        chunks = self._chunks
        while not chunks:
            if self._error is not None:
                raise self._error
            if self._is_complete:
                return b""
            self._waiter = waiter = self._loop.create_future()
            await waiter
        self._buffered_bytes = 0
        if self._is_paused:
            self._is_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
        if len(chunks) == 1:
            return chunks.popleft()
        data = b"".join(chunks)
        chunks.clear()
        return data

    def take_whole(self) -> bytes | None:
        """Return the whole body if it has arrived in one piece; else None, and nothing is taken."""
        if self._is_complete and len(self._chunks) == 1 and not self._is_paused:
            self._buffered_bytes = 0
            return self._chunks.popleft()
        return None

    async def read_all(self, limit_bytes: int) -> bytes:
        """Return the whole body. Raises as :meth:`read`, and :class:`ReplyTooLargeError`."""
        parts: list[bytes] = []
        size = 0
        while data := await self.read():
            parts.append(data)
            size += len(data)
            if size > limit_bytes:
                raise ReplyTooLargeError(f"The engine's reply is over {limit_bytes} bytes.")
        return b"".join(parts)

    async def read_to_end(self) -> None:
        """Read and drop the rest of the body. Raises as :meth:`read`."""
        while await self.read():
            pass

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
        self._has_started = True
        self.last_received_at = self._loop.time()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._is_complete:  # else the reply was whole; what follows it is nobody's
                self._fail(MalformedReplyError("The engine's reply is not valid HTTP."))
            self.close()
            return
        if self._chunks:
            self._buffered_bytes += len(data)
            waiter = self._waiter
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
            if self._buffered_bytes > PAUSE_READING_BYTES and not self._is_paused:
                self._is_paused = True
                self._transport.pause_reading()

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

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Refuse a second reply that nobody asked for (httptools' callback)."""
        if not self._is_busy:
            raise MalformedReplyError("The engine sent a reply that nobody asked for.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect one header (httptools' callback)."""
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Wake the sender (httptools' callback)."""
        status = self._parser.get_status_code()
        self._is_informational = 100 <= status < 200
        if self._is_informational:
            self.headers = {}
            return
        self.status = status
        headers = self.headers
        self._has_framing = b"content-length" in headers or b"transfer-encoding" in headers
        self._keeps_alive = self._parser.should_keep_alive()
        waiter = self._head_waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def on_message_complete(self) -> None:
        """Mark the body's end (httptools' callback)."""
        if self._is_informational:
            return
        self._is_complete = True
        self._is_busy = False
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        self._keeps_alive = False
        self._is_busy = False
        waiter = self._head_waiter
        if waiter is not None and not waiter.done():
            waiter.set_exception(self._error)
            return
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
