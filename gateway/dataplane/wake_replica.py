"""Wake one replica: through its agent, or by vLLM's own ``/wake_up``, and see it serve."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from backends.errors import BackendError
from backends.http_pool import Endpoint
from backends.vllm.ask import ask
from backends.vllm.wake_times import WakeTimes
from backends.write_queue import WriteQueue
from gateway.snapshot.model import Replica

# Nobody waits as long; it ends a wait for an engine that will never come.
_GIVE_UP_SECONDS = 3600.0
_POLL_SECONDS = 0.25
_ASK_SECONDS = 5.0
_CONNECT_SECONDS = 2.0
_AGENT_PATIENCE = 8  # questions in a row without an answer: the agent is gone
_FAILURES_LIMIT = 3  # starts in a row that failed: another replica is the better hope
_KIND = "wake"


class WakeFailedError(Exception):
    """This replica will not wake; the text says why, for the log."""


class WakeDroppedError(Exception):
    """It was put to sleep again, and nobody waits for it any more: so be it."""


class _AgentReport(msgspec.Struct):
    """What we read of the agent's report."""

    state: str
    wake_left_seconds: float | None = None
    failures: int = 0
    reason: str | None = None


_decode = msgspec.json.Decoder(_AgentReport).decode


class ReplicaWake:
    """One replica's wake; :meth:`close` it afterwards."""

    def __init__(
        self, replica: Replica, times: WakeTimes, *, is_wanted: Callable[[], bool]
    ) -> None:
        """``times``: of earlier wakes of a replica without an agent; ``is_wanted``: anybody waits."""
        self._is_wanted = is_wanted
        self._loop = asyncio.get_running_loop()
        self._times = times
        self._begun_at = self._loop.time()
        writes = WriteQueue(self._loop)
        options: dict[str, Any] = {"connect_timeout_seconds": _CONNECT_SECONDS, "writes": writes}
        self._engine = Endpoint(replica.base_url, secret=replica.secret, **options)
        self._agent: Endpoint | None = None
        if replica.agent_url is not None:
            self._agent = Endpoint(replica.agent_url, secret=replica.secret, **options)
        self._report: _AgentReport | None = None
        self._reported_at = self._begun_at

    async def run(self) -> None:
        """Return when the replica serves.

        Raises :class:`WakeFailedError` or :class:`BackendError` when it will not, and
        :class:`WakeDroppedError`.
        """
        give_up_at = self._loop.time() + _GIVE_UP_SECONDS
        if self._agent is None:
            await self._ask_engine()
        else:
            await self._ask_agent(self._agent, give_up_at)
        while not await self._is_healthy():
            if self._loop.time() > give_up_at:
                raise WakeFailedError("it was woken and is not healthy")
            await asyncio.sleep(_POLL_SECONDS)
        self._times.note(_KIND, self._loop.time() - self._begun_at)

    def find_left_seconds(self) -> float | None:
        """Return how long it will probably take still; None if nobody knows."""
        now = self._loop.time()
        report = self._report
        if report is not None and report.wake_left_seconds is not None:
            return max(0.0, report.wake_left_seconds - (now - self._reported_at))
        return self._times.find_left(_KIND, now - self._begun_at)

    def close(self) -> None:
        """Close the connections."""
        self._engine.close()
        if self._agent is not None:
            self._agent.close()

    async def _ask_engine(self) -> None:
        """Wake vLLM itself, which answers when it is awake."""
        answered = await ask(self._engine, "POST", "/wake_up", timeout_seconds=_GIVE_UP_SECONDS)
        if answered.status != 200:
            raise WakeFailedError(f"its /wake_up answered {answered.status}")

    async def _ask_agent(self, agent: Endpoint, give_up_at: float) -> None:
        """Tell the agent, then ask until it says that the engine is ready."""
        method, target, unanswered = "POST", "/wake", 0
        has_begun = False
        while True:
            try:
                answered = await ask(agent, method, target, timeout_seconds=_ASK_SECONDS)
            except BackendError:
                unanswered += 1
                if unanswered >= _AGENT_PATIENCE:
                    raise
                await asyncio.sleep(_POLL_SECONDS)
                continue
            if answered.status not in (200, 202):
                raise WakeFailedError(f"its agent answered {answered.status}")
            report = self._report = _read(answered.body)
            self._reported_at = self._loop.time()
            if report.state == "ready":
                return
            if report.state == "failed" and report.failures >= _FAILURES_LIMIT:
                raise WakeFailedError(report.reason or "its engine fails again and again")
            if self._loop.time() > give_up_at:
                raise WakeFailedError("it is not ready in time")
            is_asleep = report.state == "sleeping"
            if is_asleep and has_begun and not self._is_wanted():
                raise WakeDroppedError
            has_begun = has_begun or not is_asleep
            # Put to sleep again meanwhile, or its agent is a new one: say it once more.
            again = ("POST", "/wake")
            method, target = again if unanswered or is_asleep else ("GET", "/state")
            unanswered = 0
            await asyncio.sleep(_POLL_SECONDS)

    async def _is_healthy(self) -> bool:
        try:
            answered = await ask(self._engine, "GET", "/health", timeout_seconds=_ASK_SECONDS)
        except BackendError:
            return False
        return answered.status == 200


def _read(body: bytes) -> _AgentReport:
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise WakeFailedError("its agent's answer cannot be read") from None
