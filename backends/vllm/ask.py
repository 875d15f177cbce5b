"""One small HTTP exchange with an engine or its agent: a status, and a body of bounded size."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from backends.errors import BackendTimeoutError, StaleConnectionError
from backends.http_pool import Endpoint

BODY_LIMIT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answered:
    """What came back."""

    status: int
    body: bytes


async def ask(
    endpoint: Endpoint,
    method: str,
    target: str,
    *,
    body: bytes = b"",
    timeout_seconds: float,
    limit_bytes: int = BODY_LIMIT_BYTES,
) -> Answered:
    """Send one request and return the whole answer, whatever its status.

    ``target`` is the path and query below the endpoint's prefix. Raises
    :class:`backends.errors.BackendError`: BackendTimeoutError after ``timeout_seconds`` in all,
    ReplyTooLargeError over ``limit_bytes``, and what the connection raises.
    """
    head = (
        f"{method} {endpoint.prefix}{target} HTTP/1.1\r\n".encode("latin-1")
        + endpoint.request_headers
        + b"content-type: application/json\r\n" * bool(body)
        + b"content-length: %d\r\n\r\n" % len(body)
    )
    try:
        async with asyncio.timeout(timeout_seconds):
            try:
                return await _exchange(endpoint, head, body, limit_bytes)
            except StaleConnectionError:
                # The kept connection was closed before anything came back: a new one tells.
                return await _exchange(endpoint, head, body, limit_bytes, is_new=True)
    except TimeoutError:
        raise BackendTimeoutError(f"no answer within {timeout_seconds:g} s") from None


async def _exchange(
    endpoint: Endpoint, head: bytes, body: bytes, limit_bytes: int, *, is_new: bool = False
) -> Answered:
    kept = None if is_new else endpoint.take_idle()
    connection = kept or await endpoint.connect()
    try:
        await connection.send(head, body)
        return Answered(connection.status, await connection.read_all(limit_bytes))
    finally:
        endpoint.release(connection)
