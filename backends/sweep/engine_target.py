"""Asks an OpenAI-compatible server and times its stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from backends.engine_connection import EngineConnection
from backends.errors import (
    BackendError,
    ConnectError,
    ReplyCutError,
    StaleConnectionError,
)
from backends.http_pool import Endpoint
from backends.sweep.errors import SweepError
from backends.sweep.outcome import Failure, Outcome
from backends.sweep.stream_timing import StreamTiming, read_error
from backends.write_queue import WriteQueue

_CONNECT_SECONDS = 10.0
_MAX_REFUSAL_BYTES = 1024 * 1024
_FAILURES = {
    401: Failure.UNAUTHORIZED,
    403: Failure.UNAUTHORIZED,
    404: Failure.UNKNOWN_MODEL,
    429: Failure.REFUSED,
    503: Failure.REFUSED,
}


class Target(Protocol):
    """What a sweep drives."""

    async def ask(self, body: bytes, intended_at: float) -> Outcome:
        """Send a request and return what came of it; failures are outcomes, too."""


class EngineTarget:
    """A server over pooled HTTP/1.1 connections, as many as there are requests under way."""

    def __init__(
        self,
        base_url: str,
        *,
        secret: str | None,
        is_chat: bool,
        timeout_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        """Prepare for ``base_url``, with or without its ``/v1``. Raises :class:`SweepError`."""
        try:
            self._endpoint = Endpoint(
                base_url,
                secret=secret,
                connect_timeout_seconds=min(_CONNECT_SECONDS, timeout_seconds),
                writes=WriteQueue(asyncio.get_running_loop()),
            )
        except ValueError as error:
            raise SweepError("the base URL must be http(s)://host…") from error
        prefix = self._endpoint.prefix
        if not prefix.endswith("/v1"):
            prefix += "/v1"
        self._models_head = (
            f"GET {prefix}/models HTTP/1.1\r\n".encode("latin-1")
            + self._endpoint.request_headers
            + b"accept: application/json\r\n\r\n"
        )
        path = f"{prefix}/chat/completions" if is_chat else f"{prefix}/completions"
        self._head = (
            f"POST {path} HTTP/1.1\r\n".encode("latin-1")
            + self._endpoint.request_headers
            + b"accept: text/event-stream\r\ncontent-type: application/json\r\ncontent-length: "
        )
        self._timeout_seconds = timeout_seconds
        self._clock = clock

    async def ask(self, body: bytes, intended_at: float) -> Outcome:
        """Send a request and return what came of it; failures are outcomes, too."""
        sent_at = self._clock()
        timing = StreamTiming()
        failure: Failure | None = None
        detail = ""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                found = await self._exchange(body, timing)
            if found is not None:
                failure, detail = found
        except TimeoutError:
            failure, detail = Failure.TIMEOUT, f"no whole answer in {self._timeout_seconds:g} s"
        except ConnectError as error:
            failure, detail = Failure.UNREACHABLE, str(error)
        except (ReplyCutError, StaleConnectionError) as error:
            failure, detail = Failure.CUT, str(error)
        except BackendError as error:
            failure, detail = Failure.MALFORMED, str(error)
        return Outcome(
            intended_at,
            sent_at,
            self._clock(),
            timing.content_at,
            timing.silent_end_at,
            timing.input_tokens or 0,
            timing.cached_input_tokens,
            timing.output_tokens or 0,
            failure,
            detail,
        )

    async def find_models(self) -> bytes | None:
        """Return the server's answer to ``/v1/models``; None where it has none that can be read."""
        try:
            async with asyncio.timeout(min(_CONNECT_SECONDS, self._timeout_seconds)):
                connection = await self._endpoint.connect()
                try:
                    await connection.send(self._models_head, b"")
                    body = await connection.read_all(_MAX_REFUSAL_BYTES)
                    return body if connection.status == 200 else None
                finally:
                    self._endpoint.release(connection)
        except (BackendError, TimeoutError):
            return None

    def close(self) -> None:
        """Close the connections."""
        self._endpoint.close()

    async def _exchange(self, body: bytes, timing: StreamTiming) -> tuple[Failure, str] | None:
        head = b"%b%d\r\n\r\n" % (self._head, len(body))
        connection = self._endpoint.take_idle()
        if connection is not None:
            try:
                return await self._read(connection, head, body, timing)
            except StaleConnectionError:
                pass  # the server closed a kept connection under us: nothing was asked yet
        connection = await self._endpoint.connect()
        return await self._read(connection, head, body, timing)

    async def _read(
        self, connection: EngineConnection, head: bytes, body: bytes, timing: StreamTiming
    ) -> tuple[Failure, str] | None:
        clock = self._clock
        try:
            await connection.send(head, body)
            if connection.status != 200:
                said = read_error(await connection.read_all(_MAX_REFUSAL_BYTES))
                return _failure_of(connection.status), f"{connection.status} {said}".strip()
            while data := await connection.read():
                timing.feed(data, clock())
        finally:
            self._endpoint.release(connection)
        return timing.find_failure()


def _failure_of(status: int) -> Failure:
    found = _FAILURES.get(status)
    if found is None:
        found = Failure.REJECTED if 400 <= status < 500 else Failure.FAILED
    return found
