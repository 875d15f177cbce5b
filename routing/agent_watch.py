"""Asks the process that starts and stops an engine how it stands, and tells it when to let it sleep.

An engine that was stopped refuses connections, as one that crashed does; only its agent knows which.
"""

from __future__ import annotations

import asyncio

import msgspec

from backends.errors import BackendError
from backends.http_pool import Endpoint
from backends.vllm.ask import ask

_TELL_SECONDS = 60.0  # how often the agent's own setting is looked at


class _Report(msgspec.Struct):
    state: str
    keep_warm_seconds: float | None = None


_decode = msgspec.json.Decoder(_Report).decode


class AgentWatch:
    """The agent of one replica."""

    def __init__(
        self, endpoint: Endpoint, *, keep_warm_seconds: float | None, timeout_seconds: float
    ) -> None:
        """``keep_warm_seconds``: as the deployment has it; None leaves the agent its own."""
        self._endpoint = endpoint
        self._keep_warm_seconds = keep_warm_seconds
        self._timeout_seconds = timeout_seconds
        self._told_at: float | None = None

    def close(self) -> None:
        """Let go of the connections that are kept."""
        self._endpoint.close()

    async def find_state(self) -> str | None:
        """Return the engine's state in the agent's words; None while the agent does not answer."""
        report = await self._ask("GET", "/state")
        return None if report is None else report.state

    async def tell(self) -> None:
        """Have the agent keep the engine warm for as long as the deployment says, now and then."""
        wanted, now = self._keep_warm_seconds, asyncio.get_running_loop().time()
        is_due = self._told_at is None or now - self._told_at >= _TELL_SECONDS
        if wanted is None or not is_due:
            return
        self._told_at = now
        report = await self._ask("GET", "/state")
        if report is not None and report.keep_warm_seconds != wanted:
            await self._ask("POST", f"/keep-warm?seconds={wanted:g}")

    async def _ask(self, method: str, target: str) -> _Report | None:
        try:
            answered = await ask(
                self._endpoint, method, target, timeout_seconds=self._timeout_seconds
            )
            return _decode(answered.body) if answered.status in (200, 202) else None
        except (BackendError, msgspec.DecodeError, UnicodeDecodeError):
            return None
