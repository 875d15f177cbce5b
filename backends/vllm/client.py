"""Small questions to an engine, over its pooled connections: a GET, its status and its body."""

from __future__ import annotations

import asyncio

from backends.engine_connection import EngineConnection
from backends.errors import BackendTimeoutError, StaleConnectionError
from backends.http_pool import Endpoint

_HEAD = b"GET %b%b HTTP/1.1\r\n%baccept-encoding: identity\r\n\r\n"


async def get(
    endpoint: Endpoint, path: str, *, timeout_seconds: float, limit_bytes: int
) -> tuple[int, bytes]:
    """Return the status and the body of ``GET path``; a kept connection that died is made anew.

    Raises :class:`backends.errors.BackendError`: BackendTimeoutError after ``timeout_seconds`` in
    all, ReplyTooLargeError over ``limit_bytes``, and what the connection raises.
    """
    head = _HEAD % (endpoint.prefix.encode(), path.encode(), endpoint.request_headers)
    try:
        async with asyncio.timeout(timeout_seconds):
            kept = endpoint.take_idle()
            if kept is not None:
                try:
                    return await _exchange(endpoint, kept, head, limit_bytes)
                except StaleConnectionError:
                    pass
            return await _exchange(endpoint, await endpoint.connect(), head, limit_bytes)
    except TimeoutError:
        raise BackendTimeoutError(f"No answer to {path} within {timeout_seconds:g} s.") from None


async def _exchange(
    endpoint: Endpoint, connection: EngineConnection, head: bytes, limit_bytes: int
) -> tuple[int, bytes]:
    try:
        await connection.send(head, b"")
        return connection.status, await connection.read_all(limit_bytes)
    finally:
        # One whose reply is not whole is closed by this.
        endpoint.release(connection)
