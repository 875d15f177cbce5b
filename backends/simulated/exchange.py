"""A request and the connection that it came on, as those who answer see them."""

from __future__ import annotations

import asyncio
from typing import Protocol
from urllib.parse import parse_qs

import msgspec

from backends.local.errors import ApiError

_encode = msgspec.json.Encoder().encode


class Request(msgspec.Struct, frozen=True):
    """A request as it came."""

    method: bytes
    path: bytes
    query: bytes
    body: bytes
    outer_id: bytes  # its x-request-id

    def find_option(self, name: str) -> str | None:
        """Return a query option's last value."""
        values = self.options(name)
        return values[-1] if values else None

    def options(self, name: str) -> list[str]:
        """Return all values of a query option."""
        return parse_qs(self.query.decode("latin-1")).get(name, [])


class Abortable(Protocol):
    """An answer on its way."""

    def abort(self) -> None:
        """Drop it: its client left."""


class Later:
    """Something that is answered after a while."""

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self._timer = timer

    def abort(self) -> None:
        """Do not answer."""
        self._timer.cancel()


class Client(Protocol):
    """The connection that a request came on, as its answer sees it."""

    def respond(
        self,
        status: int,
        body: bytes,
        content_type: str = "application/json",
        retry_after_seconds: int | None = None,
    ) -> None:
        """Send a whole reply."""

    def begin_stream(self) -> None:
        """Send the head of an event stream."""

    def send(self, data: bytes, *, is_last: bool) -> None:
        """Send a piece of the stream."""

    def send_raw(self, data: bytes) -> None:
        """Send bytes that are no HTTP, and close."""

    def cut(self) -> None:
        """Break the connection."""


def error_reply(client: Client, error: ApiError, retry_after_seconds: int | None = None) -> None:
    """Answer with an error in vLLM's shape."""
    body = _encode(error.payload())
    client.respond(error.status, body, retry_after_seconds=retry_after_seconds)
