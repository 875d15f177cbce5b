"""A client's connection: requests parsed by llhttp, served one after the other.

llhttp's strict mode refuses what smuggling is made of (two lengths, a length beside chunks, bare
line feeds, folded headers); we add that a request has exactly one ``host``. Whatever is refused
here is told in the API's own error shape, and the connection is closed. A wish for another protocol
(``upgrade``) is no reason: the request is served as what it also is.

A client that ends its side of the connection counts as gone, also if it might still read: nothing
else tells in time that somebody hung up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import httptools

from backends.write_queue import WriteTarget
from gateway.dataplane.http.exchange import HttpExchange
from gateway.dataplane.http.refusals import (
    MAX_HEAD_BYTES,
    head_too_large,
    malformed,
    no_tunnel,
    too_slow,
)
from gateway.dataplane.http.without_upgrade import head_without_upgrade
from gateway.errors import ApiError

if TYPE_CHECKING:
    from gateway.dataplane.http.connection_server import ConnectionServer
    from gateway.dataplane.http.head import HeaderLines

WRITE_HIGH_BYTES = 256 * 1024  # more unsent than this: the client is slow
_UNREAD_BODY_BYTES = 1024 * 1024  # of a request whose turn has not come
# A refused upload is read and dropped so far, lest the refusal be lost to a reset: clients that
# send all before they read are most of them. Nothing of it is kept.
_DROP_BYTES = 64 * 1024 * 1024
_LINGER_TICKS = 30
_LINGER_SILENT_TICKS = 5


class ClientConnection(asyncio.Protocol):
    """One accepted connection."""

    __slots__ = (
        "_dropped_bytes",
        "_fault",
        "_fed_bytes",
        "_head_bytes",
        "_headers",
        "_host_count",
        "_is_closing",
        "_is_in_head",
        "_is_reading_paused",
        "_linger_until_tick",
        "_parser",
        "_receiving",
        "_refusal",
        "_server",
        "_target",
        "_transport",
        "_url",
        "_waiting",
        "current",
        "is_congested",
        "is_lost",
        "last_received_tick",
        "loop",
        "task",
        "waiter",
    )

    _transport: asyncio.Transport

    def __init__(self, server: ConnectionServer[ClientConnection]) -> None:
        self._server = server
        self.loop = server.loop
        self._parser = httptools.HttpRequestParser(self)
        self._receiving: HttpExchange | None = None  # its body is not whole
        self._waiting: deque[HttpExchange] = deque()  # pipelined behind the current one
        self._headers: dict[bytes, bytes] = {}
        self._url = b""
        self._head_bytes = 0  # of whole headers
        self._fed_bytes = 0  # since the head began, while it is not whole
        self._host_count = 0
        self._dropped_bytes = 0
        self._linger_until_tick: int | None = None  # of a refused upload
        self._fault: ApiError | None = None  # what a callback of the parser raised
        self._refusal: ApiError | None = None  # to be told after the replies before it
        self._is_closing = False
        self._is_in_head = False
        self._is_reading_paused = False
        self.is_congested = False
        self.is_lost = False
        self.current: HttpExchange | None = None  # being served
        self.task: asyncio.Task[None] | None = None  # serves, from the first request on
        self.waiter: asyncio.Future[None] | None = None  # of that task, between requests
        self.last_received_tick = server.tick

    # What the exchange calls.

    def write(self, data: bytes) -> None:
        """Have bytes sent in the loop's next pass."""
        self._server.writes.write(self._target, data)

    def abort(self) -> None:
        """Close at once, unsent bytes included."""
        self._transport.abort()

    def date_line(self) -> HeaderLines:
        """Return the reply's ``date`` line."""
        return self._server.clock.date_line()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport (asyncio's callback)."""
        self._transport = transport  # type: ignore[assignment]  # the loop hands a Transport
        self._target = WriteTarget(self._transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        self._server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Feed the parser and serve what is complete (asyncio's callback)."""
        self.last_received_tick = self._server.tick
        if self._is_closing:  # the rest of a refused upload is dropped, and soon not even read
            self._dropped_bytes += len(data)
            if self._dropped_bytes > _DROP_BYTES:
                self._transport.pause_reading()
            return
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._read_past_upgrade(data, upgrade.args[0])
        except httptools.HttpParserError as error:
            self._break_off(self._fault or malformed(error))
            return
        if self._is_in_head:  # the parser keeps an unfinished header to itself, however long
            self._fed_bytes += len(data)
            if self._fed_bytes > MAX_HEAD_BYTES:
                self._break_off(head_too_large())
                return
        if self.current is None:
            self._serve_next()
        self._pace_reading()

    def eof_received(self) -> None:
        """Count the client as gone (asyncio's callback); the transport closes."""

    def connection_lost(self, _error: Exception | None) -> None:
        """Tell whoever serves this client (asyncio's callback)."""
        self._is_closing = self.is_lost = True
        self._wake()
        del self._parser  # it holds this object: without it nothing waits for the collector
        self._server.connections.discard(self)
        self._waiting.clear()
        if self.current is not None:
            self.current.leave()

    def pause_writing(self) -> None:
        """Note that the client is slow (asyncio's callback)."""
        self.is_congested = True

    def resume_writing(self) -> None:
        """Note that it has caught up (asyncio's callback)."""
        self.is_congested = False
        if self.current is not None:
            self.current.resume()

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Begin a request (httptools' callback)."""
        self._headers = {}
        self._url = b""
        self._head_bytes = self._fed_bytes = self._host_count = 0
        self._is_in_head = True

    def on_url(self, url: bytes) -> None:
        """Collect the target (httptools' callback)."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect one header (httptools' callback)."""
        name = name.lower()
        self._head_bytes += len(name) + len(value) + 4  # colon, space, line end
        if self._head_bytes > MAX_HEAD_BYTES:
            raise self._failing(head_too_large())
        if name == b"host":
            self._host_count += 1
        self._headers.setdefault(name, value)

    def on_headers_complete(self) -> None:
        """Line the request up (httptools' callback)."""
        self._is_in_head = False
        parser = self._parser
        is_http_1_0 = parser.get_http_version() == "1.0"
        if self._host_count > 1 or (self._host_count == 0 and not is_http_1_0):
            raise self._failing(malformed("a request has exactly one Host header"))
        url = self._url
        if url[:1] != b"/":
            url = self._read_long_target(url)
        exchange = HttpExchange(
            self,
            method=parser.get_method().decode("ascii"),
            path=url.partition(b"?")[0].decode("latin-1"),
            headers=self._headers,
            keeps_alive=parser.should_keep_alive() and not self._server.is_draining,
            is_http_1_0=is_http_1_0,
        )
        if not is_http_1_0:
            exchange.expects_continue = self._headers.get(b"expect", b"").lower() == b"100-continue"
        self._receiving = exchange
        self._waiting.append(exchange)

    def _read_long_target(self, target: bytes) -> bytes:
        """Return the path of an absolute target (RFC 9112 section 3.2.2), or "*"."""
        if self._parser.get_method() == b"CONNECT":
            return b"/"  # its target is a host and a port; it is refused in any case
        try:
            return httptools.parse_url(target).path or b"/"
        except httptools.HttpParserInvalidURLError:
            raise self._failing(malformed("its target is no path and no address")) from None

    def _failing(self, error: ApiError) -> ApiError:
        """Keep what a callback is about to raise: the parser says only that it raised."""
        self._fault = error
        return error

    def _read_past_upgrade(self, data: bytes, head_end: int | None) -> None:
        """Take requests that ask for another protocol as HTTP/1.1, and read on behind them.

        ``head_end`` is where in ``data`` the parser took the request to end: at its head's end.
        """
        unread = memoryview(data)
        while head_end is not None:
            asked, unread = self._waiting.pop(), unread[head_end:]
            if asked.method == "CONNECT":
                raise httptools.HttpParserError from self._failing(no_tunnel())
            head = head_without_upgrade(
                asked.method, self._url, self._parser.get_http_version(), self._headers
            )
            self._parser = httptools.HttpRequestParser(self)
            self._parser.feed_data(head)
            self._waiting[-1].keeps_alive = asked.keeps_alive
            head_end = None
            try:
                self._parser.feed_data(unread)
            except httptools.HttpParserUpgrade as upgrade:
                head_end = upgrade.args[0]

    def on_body(self, data: bytes) -> None:
        """Collect a piece of the body (httptools' callback)."""
        if self._receiving is not None:
            self._receiving.add_body(data)

    def on_message_complete(self) -> None:
        """Note that the request is whole (httptools' callback)."""
        if self._receiving is not None:
            self._receiving.end_body()
            self._receiving = None

    # Serving.

    def _serve_next(self) -> None:
        if self._waiting:
            self.current = self._waiting.popleft()
            if self.task is None:
                self.task = self._server.serve(self)
            else:
                self._wake()
        elif self._refusal is not None:
            self._refuse(self._refusal)

    def _wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def served(self, exchange: HttpExchange) -> None:
        """Go on after a request was served: end its reply, then the next one or the close."""
        self.current = None
        if self._is_closing:
            return
        if not exchange.has_begun:
            self._transport.abort()  # nothing can be said: the client sees a broken connection
            return
        if not exchange.is_ended:
            exchange.end_stream()
        if not exchange.is_body_whole or not exchange.keeps_alive or self._server.is_draining:
            self._close_after_reply(is_upload_running=not exchange.is_body_whole)
            return
        self._serve_next()
        self._pace_reading()

    def _pace_reading(self) -> None:
        """Read on only while what is held unserved is little."""
        waiting = self._waiting
        held = waiting[-1].unread_body_bytes if waiting else 0
        is_full = len(waiting) > 1 or held > _UNREAD_BODY_BYTES or self._refusal is not None
        if is_full != self._is_reading_paused and not self._is_closing:
            self._is_reading_paused = is_full
            if is_full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _break_off(self, error: ApiError) -> None:
        """Read nothing more. The request at fault gets ``error``, after the replies before it."""
        self._is_reading_paused = True
        self._transport.pause_reading()
        broken, self._receiving = self._receiving, None
        if broken is not None and broken is self.current:
            broken.keeps_alive = False
            broken.break_body(error)  # its handler tells it
            return
        if broken is not None:
            self._waiting.remove(broken)
        self._refusal = error
        if self.current is None:
            self._serve_next()

    def _refuse(self, error: ApiError) -> None:
        """Answer a request that could not be read, and close."""
        exchange = HttpExchange(
            self,
            method="",
            path="",
            headers={},
            keeps_alive=False,
            is_http_1_0=False,
        )
        self._server.refuse(exchange, error)
        self._close_after_reply(is_upload_running=True)

    def _close_after_reply(self, *, is_upload_running: bool) -> None:
        self._is_closing = True
        self._server.writes.flush()
        if not is_upload_running:
            self._transport.close()
            return
        # What still comes is read and dropped for a moment: closing over unread bytes would reset
        # the connection, and the client might never see the reply.
        if self._transport.can_write_eof():
            self._transport.write_eof()
        if self._is_reading_paused:
            self._transport.resume_reading()
        self._linger_until_tick = self._server.tick + _LINGER_TICKS
        self._receiving = None  # what has come of its body is held no longer
        self._waiting.clear()

    def check_pace(self, *, idle_ticks: int, receive_ticks: int) -> None:
        """Close an idle connection, refuse a request that comes too slowly."""
        silent_ticks = self._server.tick - self.last_received_tick
        if self._linger_until_tick is not None:
            if self._server.tick > self._linger_until_tick or silent_ticks > _LINGER_SILENT_TICKS:
                self._transport.abort()
        elif self._receiving is not None or (self._is_in_head and self.current is None):
            if silent_ticks > receive_ticks and not self._is_reading_paused:
                self._break_off(too_slow())
        elif self.current is None and silent_ticks > idle_ticks:
            self.close_idle()

    def close_idle(self) -> None:
        """Close the connection if no request is on it."""
        if self.current is None and not self._is_closing:
            self._is_closing = True
            self._server.writes.flush()
            self._transport.close()
