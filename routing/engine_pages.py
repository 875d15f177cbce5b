"""The pages that an engine is asked for once it has said that it is well.

None of them has to be there, and none makes an engine a failed one. But a page that it has always
given and that does not come is a doubt: whoever freezes just then would else be asked for its health
only later.
"""

from __future__ import annotations

import asyncio

import msgspec

from backends.errors import BackendError, BackendTimeoutError
from backends.http_pool import Endpoint
from backends.vllm.ask import ask
from backends.vllm.metrics import NO_METRICS, EngineMetrics, parse_metrics

_UNTOLD_SECONDS = 60.0  # what an engine does not have (404) is asked for again so much later
_SMALL_BYTES = 64 * 1024
_METRICS_BYTES = 4 * 1024 * 1024


class _SleepState(msgspec.Struct):
    is_sleeping: bool


_decode_sleep_state = msgspec.json.Decoder(_SleepState).decode


class EnginePages:
    """The pages of one engine."""

    def __init__(self, endpoint: Endpoint, timeout_seconds: float) -> None:
        """``timeout_seconds``: of each."""
        self._endpoint = endpoint
        self._timeout_seconds = timeout_seconds
        self._answered: set[str] = set()  # that came the last time
        self._metrics_due_at = 0.0
        self._sleep_state_due_at = 0.0
        self.silent_since: float | None = None  # a page was asked for then and has not come

    async def ask_metrics(self) -> EngineMetrics:
        """Return the engine's metrics; none of one that has none, which is no failure."""
        now = asyncio.get_running_loop().time()
        if now < self._metrics_due_at:
            return NO_METRICS
        try:
            status, page = await self.get("/metrics", _METRICS_BYTES)
        except BackendError:
            return NO_METRICS
        if status == 200:
            return parse_metrics(page)
        self._metrics_due_at = now + _UNTOLD_SECONDS
        return NO_METRICS

    async def ask_sleep_state(self) -> bool | None:
        """Return whether vLLM in dev mode sleeps; None where it does not tell."""
        now = asyncio.get_running_loop().time()
        if now < self._sleep_state_due_at or self.silent_since is not None:
            return None
        try:
            status, body = await self.get("/is_sleeping", _SMALL_BYTES)
            if status == 200:
                return _decode_sleep_state(body).is_sleeping
        except (BackendError, msgspec.DecodeError, UnicodeDecodeError):
            return None
        self._sleep_state_due_at = now + _UNTOLD_SECONDS
        return None

    async def get(self, path: str, limit_bytes: int) -> tuple[int, bytes]:
        """Return a page's status and text. Raises :class:`BackendError`."""
        asked_at = asyncio.get_running_loop().time()
        try:
            answered = await ask(
                self._endpoint,
                "GET",
                path,
                timeout_seconds=self._timeout_seconds,
                limit_bytes=limit_bytes,
            )
        except BackendTimeoutError:
            if path in self._answered:
                self._answered.discard(path)  # one that never comes says nothing
                self.silent_since = asked_at
            raise
        self._answered.add(path)
        return answered.status, answered.body
