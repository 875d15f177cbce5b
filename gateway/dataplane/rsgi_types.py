"""The parts of Granian's RSGI objects that we use, as types.

https://github.com/emmett-framework/granian/blob/master/docs/spec/RSGI.md
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

HeaderList = list[tuple[str, str]]


class RequestHeaders(Protocol):
    """Request headers; names are lower-case."""

    def get(self, key: str, default: Any = None) -> str | None:
        """Return the first value of a header."""

    def __contains__(self, key: str) -> bool: ...


class Scope(Protocol):
    """What is asked."""

    proto: str
    method: str
    path: str
    query_string: str
    client: str  # host:port
    headers: RequestHeaders


class StreamTransport(Protocol):
    """A reply under way."""

    async def send_bytes(self, data: bytes) -> None:
        """Send a piece. Raises RSGIProtocolClosed when the client has left."""


class HttpExchange(Protocol):
    """The server's side of one request."""

    async def __call__(self) -> bytes:
        """Return the whole body."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def client_disconnect(self) -> None:
        """Return when the client has left."""

    def response_bytes(self, status: int, headers: HeaderList, body: bytes) -> None:
        """Answer at once."""

    def response_stream(self, status: int, headers: HeaderList) -> StreamTransport:
        """Begin a reply in pieces."""
