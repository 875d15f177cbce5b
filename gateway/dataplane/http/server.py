"""The server of one worker: accepts, runs a handler for each exchange, watches the pace."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from backends.write_queue import WriteQueue
from gateway.dataplane.http.client_connection import ClientConnection
from gateway.dataplane.http.clock import Clock
from gateway.dataplane.http.exchange import HttpExchange
from gateway.errors import ApiError

BACKLOG = 4096
TICK_SECONDS = 1.0
IDLE_TICKS = 75  # a kept connection without a request
RECEIVE_TICKS = 30  # silence inside a request

Handler = Callable[[HttpExchange], Awaitable[None]]
Refuser = Callable[[HttpExchange, ApiError], None]


class HttpServer:
    """Serves ``handler`` on a listening socket; ``refuse`` answers what no handler ever sees."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        handler: Handler,
        refuse: Refuser,
        writes: WriteQueue,
    ) -> None:
        self.loop = loop
        self.writes = writes
        self.clock = Clock(loop)
        self.connections: set[ClientConnection] = set()
        self.is_draining = False
        self.tick = 0
        self._refuse = refuse
        self._handler = handler
        self._listener: asyncio.Server | None = None
        self._ticking: asyncio.Task[None] | None = None

    async def start(self, sock: socket.socket) -> None:
        """Begin to accept on ``sock``, which listens already or will now."""
        self._listener = await self.loop.create_server(
            lambda: ClientConnection(self), sock=sock, backlog=BACKLOG
        )
        self._ticking = self.loop.create_task(self._tick())

    def serve(self, connection: ClientConnection) -> asyncio.Task[None]:
        """Serve a connection's exchanges; it keeps the task, for the loop does not.

        One task a connection: a task for each exchange costs several times a wake-up.
        """
        return self.loop.create_task(self._serve(connection))

    def refuse(self, exchange: HttpExchange, error: ApiError) -> None:
        """Answer what could not be read."""
        self._refuse(exchange, error)

    async def _serve(self, connection: ClientConnection) -> None:
        while not connection.is_lost:
            exchange = connection.current
            if exchange is None:
                connection.waiter = waiter = self.loop.create_future()
                await waiter
                continue
            try:
                await self._handler(exchange)
            except BaseException:
                connection.abort()  # nothing may wait for a task that is no more
                raise
            connection.served(exchange)

    def begin_draining(self) -> None:
        """Close connections as they become idle. New ones are still answered."""
        self.is_draining = True
        for connection in list(self.connections):
            connection.close_idle()

    async def stop(self) -> None:
        """Stop accepting and let the replies under way be written out, for a moment at most."""
        if self._listener is not None:
            self._listener.close()
        if self._ticking is not None:
            self._ticking.cancel()
        self.clock.stop()
        tasks = [
            connection.task
            for connection in self.connections
            if connection.task is not None and connection.current is not None
        ]
        if tasks:
            await asyncio.wait(tasks, timeout=TICK_SECONDS)
        for connection in list(self.connections):
            connection.close_idle()
        give_up_at = self.loop.time() + TICK_SECONDS
        while self.connections and self.loop.time() < give_up_at:  # noqa: ASYNC110 - at the end
            await asyncio.sleep(0.01)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.tick += 1
            for connection in list(self.connections):
                connection.check_pace(idle_ticks=IDLE_TICKS, receive_ticks=RECEIVE_TICKS)
