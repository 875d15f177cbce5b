"""Pooled HTTP/1.1 client connections to engines, on asyncio and httptools.

One :class:`Endpoint` per engine address keeps its idle connections (last used first). A connection
carries one exchange at a time::

    connection = endpoint.take_idle() or await endpoint.connect()
    try:
        await connection.send(head, body)      # returns when the reply's headers are there
        while chunk := await connection.read():  # everything that has arrived; b"" at the end
            ...
    finally:
        endpoint.release(connection)           # kept if the exchange is whole, closed otherwise

A connection that is not read from stops reading from its socket at 1 MiB, so a slow client slows
its engine instead of filling our memory. Timeouts are not kept per read: :attr:`last_received_at`
tells whoever watches, and :meth:`Connection.abort` ends the exchange with an error of his.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from urllib.parse import urlsplit

from backends.engine_connection import EngineConnection
from backends.errors import ConnectError, ConnectTimeoutError
from backends.known_head import KnownHead
from backends.write_queue import WriteQueue

IDLE_CONNECTIONS_LIMIT = 1024


class Endpoint:
    """One engine address and its connections."""

    __slots__ = (
        "_connect_timeout_seconds",
        "_connecting",
        "_host",
        "_idle",
        "_port",
        "_tls",
        "in_flight",
        "known_at",
        "known_head",
        "last_received_at",
        "prefix",
        "request_headers",
        "writes",
    )

    def __init__(
        self,
        base_url: str,
        *,
        secret: str | None = None,
        connect_timeout_seconds: float,
        writes: WriteQueue,
    ) -> None:
        """Prepare for ``base_url`` (scheme, authority and any path prefix).

        Raises ValueError for a URL that is not http(s) or has no host.
        """
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                "an engine's URL must be http(s)://host…"
            )  # unsaid: it may hold secrets
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host = parts.hostname
        self._port = parts.port or (443 if self._tls else 80)
        self._connect_timeout_seconds = connect_timeout_seconds
        self._connecting: set[asyncio.Timeout] = set()  # of those that wait for a connection
        self._idle: deque[EngineConnection] = deque()
        self.prefix = parts.path.rstrip("/")
        authority = parts.netloc.rpartition("@")[2]
        headers = f"host: {authority}\r\n"
        if secret is not None:
            headers += f"authorization: Bearer {secret}\r\n"
        self.request_headers = headers.encode("latin-1")
        self.in_flight = 0
        self.known_head: KnownHead | None = None
        self.known_at = float("-inf")
        self.last_received_at = 0.0  # on any connection; the event loop's clock
        self.writes = writes

    def take_idle(self) -> EngineConnection | None:
        """Return an idle connection for one exchange, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable:
                connection.is_reused = True
                self.in_flight += 1
                return connection
        return None

    async def connect(self) -> EngineConnection:
        """Return a new connection for one exchange.

        Raises :class:`ConnectError` or :class:`ConnectTimeoutError`.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_seconds) as limit:
                self._connecting.add(limit)
                try:
                    _, connection = await loop.create_connection(
                        lambda: EngineConnection(loop, self), self._host, self._port, ssl=self._tls
                    )
                finally:
                    self._connecting.discard(limit)
        except TimeoutError:
            raise ConnectTimeoutError("The engine did not accept a connection in time.") from None
        except OSError as error:  # ssl.SSLError is one
            raise ConnectError(f"The engine cannot be reached ({type(error).__name__}).") from error
        self.in_flight += 1
        return connection

    def give_up_connecting(self) -> None:
        """End all waits for a connection, as if their time were over."""
        now = asyncio.get_running_loop().time()
        for limit in self._connecting:
            if not limit.expired():
                limit.reschedule(now)

    def release(self, connection: EngineConnection) -> None:
        """Take a connection back: keep it if its exchange is whole, else close it at once."""
        self.in_flight -= 1
        connection.forget_error()
        if connection.is_reusable and len(self._idle) < IDLE_CONNECTIONS_LIMIT:
            self._idle.append(connection)
        else:
            connection.close()

    def forget(self, connection: EngineConnection) -> None:
        """Drop an idle connection that the engine closed."""
        with contextlib.suppress(ValueError):  # it was in use, or was never idle
            self._idle.remove(connection)

    def close(self) -> None:
        """Close the idle connections; those in use are closed on release."""
        while self._idle:
            self._idle.pop().close()
