"""A client's connection: requests are read, and served one after the other.

Whatever is refused here is told in the API's own error shape, and the connection is closed. A wish
for another protocol (``upgrade``) is no reason: the request is served as what it also is.

A client that ends its side of the connection counts as gone, also if it might still read: nothing
else tells in time that somebody hung up. If it does read, it is told so.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httptools

from backends.write_queue import WriteTarget
from gateway.dataplane.http.exchange import HttpExchange
from gateway.dataplane.http.refusals import half_closed, head_too_large, malformed, too_slow
from gateway.dataplane.http.request_reader import RequestReader
from gateway.errors import ApiError

if TYPE_CHECKING:
    from gateway.dataplane.http.connection_server import ConnectionServer

WRITE_HIGH_BYTES = 256 * 1024  # more unsent than this: the client is slow
_UNREAD_BODY_BYTES = 1024 * 1024  # of a request whose turn has not come
# A refused upload is read and dropped so far, lest the refusal be lost to a reset: clients that
# send all before they read are most of them. Nothing of it is kept.
_DROP_BYTES = 64 * 1024 * 1024
_LINGER_TICKS = 30
_LINGER_SILENT_TICKS = 5


class ClientConnection(RequestReader, asyncio.Protocol):
    """One accepted connection."""

    __slots__ = (
        "_dropped_bytes",
        "_is_closing",
        "_is_reading_paused",
        "_linger_until_tick",
        "_refusal",
        "_target",
        "_transport",
        "current",
        "is_lost",
        "last_received_tick",
        "task",
        "waiter",
    )

    _transport: asyncio.Transport

    def __init__(self, server: ConnectionServer[ClientConnection]) -> None:
        super().__init__(server)
        self._dropped_bytes = 0
        self._linger_until_tick: int | None = None  # of a refused upload
        self._refusal: ApiError | None = None  # to be told after the replies before it
        self._is_closing = False
        self._is_reading_paused = False
        self.is_lost = False
        self.current: HttpExchange | None = None  # being served
        self.task: asyncio.Task[None] | None = None  # serves, from the first request on
        self.waiter: asyncio.Future[None] | None = None  # of that task, between requests
        self.last_received_tick = server.tick

    # What the exchange calls.

    def write(self, data: bytes) -> None:
        """Have bytes sent in the loop's next pass."""
        writes = self._server.writes
        writes.pending.append((self._target, data))  # as writes.write() does, without the call
        if not writes.is_scheduled:
            writes.schedule()

    def abort(self) -> None:
        """Close at once, unsent bytes included."""
        self._transport.abort()

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
        self._read_bytes = len(data)
        if self._is_closing:  # the rest of a refused upload is dropped, and soon not even read
            self._dropped_bytes += len(data)
            if self._dropped_bytes > _DROP_BYTES:
                self._transport.pause_reading()
            return
        is_between = self.current is None and not self._is_in_head  # two requests
        if is_between:
            known = self._known
            if known is not None:
                exchange = self._read_known(known, data)
                if exchange is not None:
                    self._begin(exchange)
                    return
        elif self._body_left:
            data = self._read_known_body(data)
        if data and not self._parse(data):
            return
        if self.current is None and (self._waiting or self._refusal is not None):
            if is_between and self._waiting and self._known_tick != self._server.tick:
                self._note_known(data, self._waiting[0])
            self._serve_next()
        if self._waiting or self._is_reading_paused or self._refusal is not None:
            self._pace_reading()

    def _parse(self, data: bytes) -> bool:
        """Feed the parser; tell whether to go on."""
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._read_past_upgrade(data, upgrade.args[0])
        except httptools.HttpParserError as error:
            self._break_off(self._fault or malformed(error))
            return False
        if self._is_in_head and self._is_head_endless(len(data)):
            self._break_off(head_too_large())
            return False
        return True

    def eof_received(self) -> bool:
        """Count the client as gone a pass from now (asyncio's callback).

        Until then whatever needs no engine is answered, to a client that only ended its side.
        """
        self.loop.call_soon(self._close_half_closed)
        return True  # the transport stays until then

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

    # Serving.

    def _serve_next(self) -> None:
        if self._waiting:
            self._begin(self._waiting.popleft())
        elif self._refusal is not None:
            self._refuse(self._refusal, is_upload_running=True)

    def _begin(self, exchange: HttpExchange) -> None:
        self.current = exchange
        if self.task is None:
            self.task = self._server.serve(self)
        else:
            self._wake()

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
        if self._waiting or self._is_reading_paused or self._refusal is not None:
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

    def _refuse(self, error: ApiError, *, is_upload_running: bool) -> None:
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
        self._close_after_reply(is_upload_running=is_upload_running)

    def _close_half_closed(self) -> None:
        """Close; if a reply was due and has not begun, a client that reads is told why it ends."""
        exchange = self.current
        if self._is_closing:
            self._transport.close()
        elif exchange is not None and not exchange.has_begun:
            self._refuse(half_closed(), is_upload_running=False)
        elif exchange is not None and not exchange.is_ended:
            # What a slow client has not taken yet would keep its engine at work until it does.
            self._transport.abort()
        else:
            self._close_after_reply(is_upload_running=False)

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
