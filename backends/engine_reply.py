"""A reply of an engine: what its parser finds in it, and how its body is read.

How it is used is told in :mod:`backends.http_pool`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httptools

from backends.errors import MalformedReplyError, ReplyTooLargeError
from backends.known_head import KnownHead

PAUSE_READING_BYTES = 1024 * 1024
MAX_HEAD_BYTES = 256 * 1024  # interim replies included; of trailers at most twice as many


class EngineReply:
    """The reply of the exchange that a connection carries; its connection feeds the parser."""

    __slots__ = (
        "_buffered_bytes",
        "_chunks",
        "_error",
        "_has_framing",
        "_head_waiter",
        "_is_busy",
        "_is_complete",
        "_is_informational",
        "_is_paused",
        "_is_stepped_out",
        "_keeps_alive",
        "_line_bytes",
        "_lines",
        "_loop",
        "_parser",
        "_pass_on",
        "_step",
        "_transport",
        "_waiter",
        "headers",
        "on_body",
        "status",
    )

    _transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._chunks: list[bytes] = []
        # The parser hands pieces of the body straight to the list; a stream has thousands.
        self.on_body = self._chunks.append
        self._parser = httptools.HttpResponseParser(self)
        self._buffered_bytes = 0
        self._error: Exception | None = None
        self._head_waiter: asyncio.Future[None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._step: Callable[[bytes], bool] | None = None
        self._pass_on: Callable[[bytes], bool] | None = None
        self._is_busy = False
        self._is_complete = True
        self._is_informational = False
        self._is_paused = False
        self._is_stepped_out = False
        self._has_framing = False
        self._line_bytes = 0  # of the reads that brought no body since the last that did
        self._keeps_alive = True
        self._lines: dict[bytes, bytes] = {}  # of the head that comes in; then of trailers
        self.headers: dict[bytes, bytes] = {}  # lower-case names; a repeated name keeps the last
        self.status = 0

    # What the user of a connection calls.

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
        self._buffered_bytes = self._line_bytes = 0
        if self._is_paused:
            self._is_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
        return self._take_chunks()

    async def read_until(
        self,
        step: Callable[[bytes], bool],
        pass_on: Callable[[bytes], bool] | None = None,
    ) -> bool:
        """Hand what arrives to ``step`` until it returns True; return False at the body's end.

        ``step`` is called where bytes arrive: a piece of a stream wakes no task. A read that comes
        between two chunks is shown to ``pass_on`` before, as it came; if that returns True, it was
        one whole chunk, and nobody else sees it. Raises as :meth:`read`, and what ``step`` raises;
        ``pass_on`` raises nothing.
        """
        while data := await self.read():
            if step(data):
                return True
            if self._chunks or self._is_complete or self._error is not None:
                continue
            self._step, self._is_stepped_out = step, False
            self._pass_on = pass_on
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._step = self._pass_on = None  # they hold the whole request
            if self._is_stepped_out:
                return True
        return False

    def _take_chunks(self) -> bytes:
        chunks = self._chunks
        if len(chunks) == 1:
            return chunks.pop()
        data = b"".join(chunks)
        chunks.clear()
        return data

    def take_whole(self) -> bytes | None:
        """Return the whole body if it has arrived in one piece; else None, and nothing is taken."""
        if self._is_complete and len(self._chunks) == 1 and not self._is_paused:
            self._buffered_bytes = 0
            return self._chunks.pop()
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

    # What the connection calls.

    def _take_step(self, step: Callable[[bytes], bool], data: bytes) -> None:
        try:
            if not step(data):
                return
            self._is_stepped_out = True
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        self._step = None
        self._line_bytes = 0
        self._wake()

    def _take_known(self, known: KnownHead | None, data: bytes) -> bool:
        """Take a reply that is one read and whose head is the known one; tell whether it is."""
        match = None if known is None else known.match(data)
        if match is None:
            return False
        self.headers, length, body = match
        if len(body) != length or not body:
            return False
        self.status = 200
        self._is_complete = True
        self._is_busy = False
        self._chunks.append(body)
        waiter = self._head_waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        return True

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Refuse a second reply that nobody asked for (httptools' callback)."""
        if not self._is_busy:
            raise MalformedReplyError("The engine sent a reply that nobody asked for.")
        self._lines = {}  # trailers of the reply before

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect one header (httptools' callback)."""
        self._lines[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Wake the sender (httptools' callback)."""
        status = self._parser.get_status_code()
        if status < 200:
            if status < 100:
                raise MalformedReplyError("The engine's status is none.")
            self._is_informational = True
            self._lines = {}
            return
        self.status = status
        headers = self.headers = self._lines
        self._lines = {}  # trailers are no part of the head (RFC 9110 section 6.5.1)
        self._has_framing = b"content-length" in headers or b"transfer-encoding" in headers
        self._keeps_alive = self._parser.should_keep_alive()
        waiter = self._head_waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def on_message_complete(self) -> None:
        """Mark the body's end (httptools' callback)."""
        if self._is_informational:
            self._is_informational = False
            return
        self._is_complete = True
        self._is_busy = False
        if self._waiter is not None:
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        self._keeps_alive = False
        self._is_busy = False
        waiter = self._head_waiter
        if waiter is not None and not waiter.done():
            waiter.set_exception(self._error)
            return
        self._wake()
