"""The agent: a few HTTP paths by which a data plane wakes an engine and asks how it stands.

``GET /state``; ``POST /wake`` and ``POST /sleep``, which say what is wanted and return at once (202)
with the state; ``POST /keep-warm?seconds=N``, which sets after how long without requests the engine
sleeps; ``GET /health`` of the agent itself. All but the last ask for the bearer token.
"""

from __future__ import annotations

import asyncio
import hmac
import math
from dataclasses import replace
from typing import cast

import httptools
import msgspec

from backends.vllm.engine_process import EngineProcess

_REQUEST_LIMIT_BYTES = 16 * 1024
_REASONS = {
    200: b"OK",
    202: b"Accepted",
    400: b"Bad Request",
    401: b"Unauthorized",
    404: b"Not Found",
    405: b"Method Not Allowed",
}
_encode = msgspec.json.Encoder().encode


class EngineReport(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine stands, as the agent tells it; spans in seconds.

    ``wake_seconds``: what nine in ten of the latest wakes took at most, of the kind that comes
    next; null before the first. ``wake_left_seconds``: until it is ready, by that.
    """

    state: str
    since_at: float  # seconds since the epoch
    sleep: str
    wake_seconds: float | None = None
    wake_left_seconds: float | None = None
    keep_warm_seconds: float | None = None
    reason: str | None = None  # of the latest failure, while it lasts
    failures: int = 0  # in a row
    pid: int | None = None


def report_of(engine: EngineProcess) -> EngineReport:
    """Return how the engine stands."""
    return EngineReport(
        state=engine.state.value,
        since_at=engine.since_at,
        sleep=engine.policy.sleep.value,
        wake_seconds=engine.wake_seconds,
        wake_left_seconds=engine.wake_left_seconds,
        keep_warm_seconds=engine.policy.keep_warm_seconds,
        reason=engine.reason,
        failures=engine.deaths,
        pid=engine.pid,
    )


def _read_seconds(query: bytes) -> float | None:
    """Return ``seconds`` of a query; None for what is no span."""
    name, _, value = query.partition(b"=")
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if name == b"seconds" and math.isfinite(seconds) and seconds >= 0 else None


class Agent:
    """Answers for one engine."""

    def __init__(self, engine: EngineProcess, token: str | None) -> None:
        """``token``: that requests must carry; None asks for none (loopback only)."""
        self._engine = engine
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._connections: set[AgentConnection] = set()

    async def listen(self, host: str, port: int) -> asyncio.Server:
        """Begin to listen. Raises OSError."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(
            lambda: AgentConnection(self, self._connections), host, port
        )

    def close(self) -> None:
        """Close the clients' connections."""
        for connection in list(self._connections):
            connection.close()

    def answer(self, method: bytes, target: bytes, authorization: bytes) -> tuple[int, object]:
        """Return a status and what the body says."""
        path, _, query = target.partition(b"?")
        if path == b"/health":
            return 200, {"status": "ok"}
        if path not in (b"/state", b"/wake", b"/sleep", b"/keep-warm"):
            return 404, {"error": "There is nothing at this path."}
        if self._expected is not None and not hmac.compare_digest(authorization, self._expected):
            return 401, {"error": "The agent's bearer token is missing or wrong."}
        if method != (b"GET" if path == b"/state" else b"POST"):
            return 405, {"error": "This path has another method."}
        if path == b"/state":
            return 200, report_of(self._engine)
        if path == b"/keep-warm":
            seconds = _read_seconds(query)
            if seconds is None:
                return 400, {"error": "seconds must be a number that is not negative."}
            self._engine.policy = replace(self._engine.policy, keep_warm_seconds=seconds)
        elif path == b"/wake":
            self._engine.wake()
        else:
            self._engine.sleep()
        return 202, report_of(self._engine)


class AgentConnection(asyncio.Protocol):
    """One client's connection; requests are answered in their order."""

    _transport: asyncio.Transport

    def __init__(self, agent: Agent, connections: set[AgentConnection]) -> None:
        self._agent = agent
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""
        self._authorization = b""
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (asyncio's callback)."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it
        self._connections.add(self)

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget the connection (asyncio's callback)."""
        self._connections.discard(self)

    def data_received(self, data: bytes) -> None:
        """Parse (asyncio's callback); what is no HTTP, or too much of it, ends the connection."""
        self._size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.close()
        if self._size > _REQUEST_LIMIT_BYTES:
            self.close()

    def on_url(self, url: bytes) -> None:
        """Collect the target (httptools' callback)."""
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note the one header that matters (httptools' callback)."""
        if name.lower() == b"authorization":
            self._authorization = value

    def on_message_complete(self) -> None:
        """Answer (httptools' callback)."""
        status, content = self._agent.answer(
            self._parser.get_method(), self._path, self._authorization
        )
        body = _encode(content)
        self._transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (status, _REASONS[status], len(body), body)
        )
        self._path = self._authorization = b""
        self._size = 0
        if not self._parser.should_keep_alive():
            self.close()

    def close(self) -> None:
        """Close the connection once what was written has left."""
        self._transport.close()
