"""One request and its reply, as the data plane's steps see them.

The body is read with :meth:`HttpExchange.read_body`; the reply is either :meth:`respond`, or
:meth:`begin_stream`, :meth:`send` and :meth:`end_stream`. Whoever must know at once that the client
left sets :attr:`on_leave`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from gateway.dataplane.http.clock import Clock
from gateway.dataplane.http.head import STATUS_LINES, HeaderLines, RequestHeaders


class ClientLine(Protocol):
    """What an exchange needs of its client's connection."""

    loop: asyncio.AbstractEventLoop
    is_congested: bool  # the client reads more slowly than it is sent to
    clock: Clock

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def abort(self) -> None:
        """Close at once."""


class ClientLeftError(Exception):
    """The client's connection is closed: nobody reads a reply any more."""


class BodyOverLimitError(Exception):
    """The request's body is larger than the reader allows."""


class HttpExchange(msgspec.Struct, eq=False):
    """One exchange on a client's connection.

    A Struct, for it is made by each request: its many defaults cost nothing there.
    """

    _connection: ClientLine
    method: str
    path: str  # as it was sent, without the query
    headers: RequestHeaders
    keeps_alive: bool
    is_http_1_0: bool
    expects_continue: bool = False
    _body: list[bytes] = []  # a new one each
    _body_bytes: int = 0
    _body_error: Exception | None = None
    _body_limit: int | None = None
    _body_waiter: asyncio.Future[None] | None = None
    _drain_waiter: asyncio.Future[None] | None = None
    _head: bytes = b""
    is_body_whole: bool = False
    has_begun: bool = False  # a reply is under way
    is_ended: bool = False  # the reply is whole
    is_gone: bool = False
    on_leave: Callable[[], None] | None = None

    async def read_body(self, limit_bytes: int) -> bytes:
        """Return the whole body, waiting for it.

        Raises :class:`BodyOverLimitError` as soon as the limit is passed, :class:`ClientLeftError`,
        and what :meth:`break_body` was given.
        """
        if not self.is_body_whole:
            self._body_limit = limit_bytes
            if self.expects_continue:
                self.expects_continue = False
                self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            while self._is_body_wanted(limit_bytes):
                if self.is_gone:
                    raise ClientLeftError
                if self._body_error is not None:
                    raise self._body_error
                self._body_waiter = self._connection.loop.create_future()
                await self._body_waiter
        return self.take_body(limit_bytes)

    def take_body(self, limit_bytes: int) -> bytes:
        """Return a body that is whole. Raises :class:`BodyOverLimitError`."""
        if self._body_bytes > limit_bytes:
            self._body.clear()
            raise BodyOverLimitError
        return self._body[0] if len(self._body) == 1 else b"".join(self._body)

    def _is_body_wanted(self, limit_bytes: int) -> bool:
        return not self.is_body_whole and self._body_bytes <= limit_bytes

    def respond(self, status: int, headers: HeaderLines, body: bytes) -> None:
        """Send a whole reply. Does nothing when the client has left."""
        if self.is_gone:
            return
        connection = self._connection
        persistence = b""
        if not (self.keeps_alive and self.is_body_whole):
            persistence = b"connection: close\r\n"
        elif self.is_http_1_0:
            persistence = b"connection: keep-alive\r\n"  # HTTP/1.0 clients are not used to it
        self.has_begun = self.is_ended = True
        connection.write(
            b"%b%b%bcontent-length: %d\r\n%b\r\n%b"
            % (
                STATUS_LINES[status],
                headers,
                connection.clock.line,
                len(body),
                persistence,
                b"" if self.method == "HEAD" else body,
            )
        )

    def begin_stream(self, status: int, headers: HeaderLines) -> None:
        """Begin a reply in pieces; its head leaves with the first of them."""
        connection = self._connection
        if self.is_http_1_0:
            self.keeps_alive = False  # only the connection's end can mark an HTTP/1.0 body's end
        framing = b"" if self.is_http_1_0 else b"transfer-encoding: chunked\r\n"
        if not (self.keeps_alive and self.is_body_whole):
            framing += b"connection: close\r\n"
        self.has_begun = True
        date_line = connection.clock.line
        self._head = b"%b%b%b%b\r\n" % (STATUS_LINES[status], headers, date_line, framing)

    def send(self, data: bytes) -> bool:
        """Send a piece; tell whether the client is slow, and :meth:`drained` to be waited for.

        Raises :class:`ClientLeftError`.
        """
        if self.is_gone:
            raise ClientLeftError
        if not self.is_http_1_0:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._head:
            data, self._head = self._head + data, b""
        connection = self._connection
        connection.write(data)
        return connection.is_congested

    def passing_line(self) -> ClientLine | None:
        """Return where chunks of a stream that has begun may be written as they are; None: nowhere.

        With their own framing, while the exchange goes on and its line is not congested.
        """
        return None if self.is_http_1_0 else self._connection

    def end_stream(self, data: bytes = b"") -> None:
        """Send the last piece, if any, and the reply's end. Raises :class:`ClientLeftError`."""
        if self.is_gone:
            raise ClientLeftError
        self.is_ended = True
        if self.is_http_1_0:
            self._connection.write(self._head + data)
        elif data:
            self._connection.write(b"%b%x\r\n%b\r\n0\r\n\r\n" % (self._head, len(data), data))
        else:
            self._connection.write(self._head + b"0\r\n\r\n")

    async def drained(self) -> None:
        """Return when the client has caught up. Raises :class:`ClientLeftError`."""
        while self._connection.is_congested:
            if self.is_gone:
                raise ClientLeftError
            self._drain_waiter = self._connection.loop.create_future()
            await self._drain_waiter

    def abandon(self) -> None:
        """Close the connection: its client takes nothing any more."""
        self._connection.abort()

    # What the connection calls.

    def add_body(self, data: bytes) -> None:
        """Take a piece of the body; past the reader's limit only its size is noted."""
        self._body_bytes += len(data)
        limit = self._body_limit
        if limit is None or self._body_bytes <= limit:
            self._body.append(data)
        elif self._body_waiter is not None:
            _wake(self._body_waiter)

    def end_body(self) -> None:
        """Note that the body is whole."""
        self.is_body_whole = True
        if self._body_waiter is not None:
            _wake(self._body_waiter)

    def break_body(self, error: Exception) -> None:
        """Note that the rest of the body cannot be had."""
        self._body_error = error
        if self._body_waiter is not None:
            _wake(self._body_waiter)

    @property
    def unread_body_bytes(self) -> int:
        """How much of a body that nobody asked for yet is held."""
        return self._body_bytes if self._body_limit is None else 0

    def resume(self) -> None:
        """Note that the client has caught up."""
        if self._drain_waiter is not None:
            _wake(self._drain_waiter)

    def leave(self) -> None:
        """Note that the client has left, and tell whoever waits."""
        self.is_gone = True
        for waiter in (self._body_waiter, self._drain_waiter):
            if waiter is not None:
                _wake(waiter)
        if self.on_leave is not None:
            self.on_leave()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
