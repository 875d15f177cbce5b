"""What a client's connection needs of the server that accepted it."""

from __future__ import annotations

import asyncio
from typing import Protocol, TypeVar

from backends.write_queue import WriteQueue
from gateway.dataplane.http.clock import Clock
from gateway.dataplane.http.exchange import HttpExchange
from gateway.errors import ApiError

ConnectionT = TypeVar("ConnectionT")


class ConnectionServer(Protocol[ConnectionT]):
    """The server as its connections see it."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    writes: WriteQueue
    connections: set[ConnectionT]
    is_draining: bool
    tick: int  # seconds, about

    def serve(self, connection: ConnectionT) -> asyncio.Task[None]:
        """Serve the connection's exchanges, one after the other, until it is lost."""

    def refuse(self, exchange: HttpExchange, error: ApiError) -> None:
        """Answer what could not be read."""
