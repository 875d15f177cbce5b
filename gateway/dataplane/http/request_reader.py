"""The reading half of a client's connection: the parser's callbacks make exchanges of bytes.

llhttp's strict mode refuses what smuggling is made of (two lengths, a length beside chunks, bare
line feeds, folded headers). We add that a request has exactly one ``host``, no transfer coding but
chunks, and none of the headers that we act on twice with different values. What stands behind a
body's last chunk (trailers) is read within the head's limit and dropped: it could be what a proxy
in front took out of the head.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any

import httptools

from gateway.dataplane.http.exchange import HttpExchange
from gateway.dataplane.http.known_request import KnownRequest, learn_request
from gateway.dataplane.http.refusals import (
    MAX_HEAD_BYTES,
    head_too_large,
    malformed,
    no_tunnel,
    refused_transfer_coding,
)
from gateway.dataplane.http.repeated_headers import join_repeated
from gateway.dataplane.http.without_upgrade import head_without_upgrade
from gateway.errors import ApiError

if TYPE_CHECKING:
    import asyncio

    from gateway.dataplane.http.clock import Clock
    from gateway.dataplane.http.connection_server import ConnectionServer
    from gateway.dataplane.http.head import RequestHeaders

# What a host and a port can be made of (RFC 3986 section 3.2.2): a slash, a blank or a quote is how
# one host is shown to a proxy in front, and another one here.
_read_host = re.compile(rb"[A-Za-z0-9\-._~!$&'()*+,;=%:\[\]]*").fullmatch


class RequestReader(ABC):
    """What has been read of a connection's requests, and not been served yet.

    A base of the connection and no part of it: llhttp calls these methods for each header, and a
    step between them and the connection's fields would be paid each time.
    """

    __slots__ = (
        "_body_left",
        "_fault",
        "_fed_bytes",
        "_headers",
        "_host",
        "_is_in_head",
        "_known",
        "_known_tick",
        "_parser",
        "_read_bytes",
        "_receiving",
        "_repeated_bytes",
        "_server",
        "_url",
        "_waiting",
        "clock",
        "is_congested",
        "loop",
    )

    loop: asyncio.AbstractEventLoop
    clock: Clock
    is_congested: bool

    def __init__(self, server: ConnectionServer[Any]) -> None:
        self._server = server
        self.loop = server.loop
        self.clock = server.clock
        self.is_congested = False
        self._parser = httptools.HttpRequestParser(self)
        self._receiving: HttpExchange | None = None  # its body is not whole
        self._waiting: deque[HttpExchange] = deque()  # pipelined behind the current one
        self._headers: dict[bytes, bytes] = {}
        self._url = b""
        self._host = b""  # of the latest request: it was looked at, and rarely changes
        self._read_bytes = 0  # of the latest read
        self._repeated_bytes = 0  # of headers that came before
        self._fed_bytes = 0  # of the head's later reads, while it is not whole; -1: none yet
        self._is_in_head = False  # or in a chunk's line, or where trailers may come
        self._fault: ApiError | None = None  # what a callback of the parser raised
        self._known: KnownRequest | None = None  # what the client will send again, it seems
        self._known_tick = -1  # when that was noted
        self._body_left = 0  # bytes of a body that the parser does not see

    # What the exchanges call.

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Have bytes sent in the loop's next pass."""

    @abstractmethod
    def abort(self) -> None:
        """Close at once, unsent bytes included."""

    # What the connection calls.

    def _read_known(self, known: KnownRequest, data: bytes) -> HttpExchange | None:
        """Return the exchange that begins with ``data``, if its head is the known one."""
        match = known.head.match(data)
        if match is None:
            return None
        headers, length, body = match
        left = length - len(body)
        exchange = HttpExchange(
            self,
            known.method,
            known.path,
            headers,
            not self._server.is_draining,
            False,
            False,
            [body] if body else [],
            len(body),
        )
        if left:
            self._body_left = left
            self._receiving = exchange
        else:
            exchange.is_body_whole = True
        return exchange

    def _read_known_body(self, data: bytes) -> bytes:
        """Take what ``data`` holds of the body of a known head's request; return what follows it."""
        left = self._body_left
        self._body_left = max(left - len(data), 0)
        self.on_body(data[:left])
        if not self._body_left:
            self.on_message_complete()
        return data[left:]

    def _note_known(self, data: bytes, exchange: HttpExchange) -> None:
        """Remember the head of ``data``, with which ``exchange`` began, for the next request."""
        self._known_tick = self._server.tick
        self._known = learn_request(data, exchange)

    def _is_head_endless(self, fed_bytes: int) -> bool:
        """Count a read that ended inside a head; say whether the head is over the limit.

        The parser keeps an unfinished header to itself, however long. Of the read in which a head
        began only the whole headers are counted: other requests may fill it.
        """
        is_first = self._fed_bytes < 0
        self._fed_bytes = _bytes_of(self._headers) if is_first else self._fed_bytes + fed_bytes
        return self._fed_bytes > MAX_HEAD_BYTES

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
                asked.method, self._url, self._parser.get_http_version(), asked.headers
            )
            self._parser = httptools.HttpRequestParser(self)
            self._parser.feed_data(head)
            self._waiting[-1].keeps_alive = asked.keeps_alive
            head_end = None
            try:
                self._parser.feed_data(unread)
            except httptools.HttpParserUpgrade as upgrade:
                head_end = upgrade.args[0]

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Begin a request (httptools' callback)."""
        self._headers = {}
        self._url = b""
        self._repeated_bytes = 0
        self._fed_bytes = -1
        self._is_in_head = True

    def on_url(self, url: bytes) -> None:
        """Collect the target (httptools' callback)."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect one header (httptools' callback)."""
        name = name.lower()
        headers = self._headers
        if name in headers:
            self._take_repeated(name, value)
        else:
            headers[name] = value

    def _take_repeated(self, name: bytes, value: bytes) -> None:
        headers = self._headers
        self._repeated_bytes += len(name) + len(value) + 4  # colon, space, line end
        if self._repeated_bytes > MAX_HEAD_BYTES:
            raise self._failing(head_too_large())
        try:
            headers[name] = join_repeated(name, headers[name], value)
        except ApiError as error:
            raise self._failing(error) from None

    def on_headers_complete(self) -> None:
        """Line the request up (httptools' callback)."""
        self._is_in_head = False
        parser = self._parser
        headers = self._headers
        self._headers = {}  # of trailers, which nobody reads
        if self._read_bytes > MAX_HEAD_BYTES and _bytes_of(headers) > MAX_HEAD_BYTES:
            raise self._failing(head_too_large())
        version = parser.get_http_version()
        is_http_1_0 = version == "1.0"
        if version != "1.1" and not is_http_1_0:
            raise self._failing(malformed("its version is neither 1.1 nor 1.0"))
        host = headers.get(b"host")
        if host is None:
            if not is_http_1_0:
                raise self._failing(malformed("a request has exactly one Host header"))
        elif host != self._host:
            if _read_host(host) is None:
                raise self._failing(malformed("its Host header is no host"))
            self._host = host
        if b"transfer-encoding" in headers:
            refusal = refused_transfer_coding(headers[b"transfer-encoding"], is_old=is_http_1_0)
            if refusal is not None:
                raise self._failing(refusal)
            self.on_chunk_complete()
        url = self._url
        if url[:1] != b"/":
            url = self._read_long_target(url)
        exchange = HttpExchange(
            self,
            method=str(parser.get_method(), "ascii"),
            path=str(url.partition(b"?")[0], "latin-1"),
            headers=headers,
            keeps_alive=parser.should_keep_alive() and not self._server.is_draining,
            is_http_1_0=is_http_1_0,
        )
        if b"expect" in headers and not is_http_1_0:
            exchange.expects_continue = headers[b"expect"].lower() == b"100-continue"
        self._receiving = exchange
        self._waiting.append(exchange)

    def on_chunk_complete(self) -> None:
        """Note that the line of the next chunk comes, with its length (httptools' callback)."""
        self._fed_bytes = -1
        self._is_in_head = True

    def on_chunk_header(self) -> None:
        """Note a chunk's length; behind that of the last one come trailers (httptools' callback)."""
        self._fed_bytes = -1
        self._is_in_head = True

    def on_body(self, data: bytes) -> None:
        """Collect a piece of the body (httptools' callback)."""
        self._is_in_head = False
        if self._receiving is not None:
            self._receiving.add_body(data)

    def on_message_complete(self) -> None:
        """Note that the request is whole (httptools' callback)."""
        self._is_in_head = False
        if self._receiving is not None:
            self._receiving.end_body()
            self._receiving = None

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


def _bytes_of(headers: RequestHeaders) -> int:
    """Return what a head's lines take, with their colons, spaces and ends."""
    return sum(map(len, headers)) + sum(map(len, headers.values())) + 4 * len(headers)
