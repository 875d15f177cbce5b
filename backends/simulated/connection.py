"""HTTP/1.1 on a plain asyncio transport: one request at a time, as a pooled client sends them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

import httptools

from backends.simulated.endpoints import SimulatedEngine
from backends.simulated.exchange import Abortable, Request

_STATUS_LINES = {200: b"HTTP/1.1 200 OK\r\n"}


class EngineSideConnection(asyncio.Protocol):
    """A client's connection to the engine; when it is lost, its sequence is too."""

    _transport: asyncio.Transport

    def __init__(self, engine: SimulatedEngine, connections: set[EngineSideConnection]) -> None:
        self._engine = engine
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""
        self._outer_id = b""
        self._body = bytearray()
        self._pending: deque[Request] = deque()
        self._is_busy = False
        self._answer: Abortable | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it
        self._connections.add(self)

    def connection_lost(self, _error: Exception | None) -> None:
        """Stop generating at once."""
        self._connections.discard(self)
        self._pending.clear()
        if self._answer is not None:
            self._answer.abort()
            self._answer = None

    def data_received(self, data: bytes) -> None:
        """Parse; what is no HTTP ends the connection."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_message_begin(self) -> None:
        """Begin a request (httptools' callback)."""
        self._path = b""
        self._outer_id = b""
        self._body.clear()

    def on_url(self, url: bytes) -> None:
        """Collect the target (httptools' callback)."""
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note the one header that matters (httptools' callback)."""
        if name.lower() == b"x-request-id":
            self._outer_id = value

    def on_body(self, data: bytes) -> None:
        """Collect the body (httptools' callback)."""
        self._body += data

    def on_message_complete(self) -> None:
        """Answer the request, after those before it (httptools' callback)."""
        path, _, query = self._path.partition(b"?")
        method: bytes = self._parser.get_method()
        self._pending.append(Request(method, path, query, bytes(self._body), self._outer_id))
        if not self._is_busy:
            self._answer_next()

    def _answer_next(self) -> None:
        self._is_busy = True
        answer = self._engine.answer(self, self._pending.popleft())
        if self._is_busy:  # else it has been answered already
            self._answer = answer

    def _ended(self) -> None:
        self._is_busy = False
        self._answer = None
        if self._pending:
            self._answer_next()

    def respond(
        self,
        status: int,
        body: bytes,
        content_type: str = "application/json",
        retry_after_seconds: int | None = None,
    ) -> None:
        """Send a whole reply."""
        if self._transport.is_closing():
            return
        line = _STATUS_LINES.get(status) or b"HTTP/1.1 %d Simulated\r\n" % status
        if retry_after_seconds is not None:
            line += b"retry-after: %d\r\n" % retry_after_seconds
        self._transport.write(
            b"%bcontent-type: %b\r\ncontent-length: %d\r\n\r\n%b"
            % (line, content_type.encode(), len(body), body)
        )
        self._ended()

    def begin_stream(self) -> None:
        """Send the head of an event stream."""
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )

    def send(self, data: bytes, *, is_last: bool) -> None:
        """Send a piece of the stream as one HTTP chunk."""
        end = b"\r\n0\r\n\r\n" if is_last else b"\r\n"
        self._transport.write(b"%x\r\n%b%b" % (len(data), data, end))
        if is_last:
            self._ended()

    def send_raw(self, data: bytes) -> None:
        """Send bytes that are no HTTP, and close."""
        self._transport.write(data)
        self._transport.close()

    def cut(self) -> None:
        """Break the connection."""
        self._transport.abort()

    def close(self) -> None:
        """End the connection with the server."""
        self._transport.close()
