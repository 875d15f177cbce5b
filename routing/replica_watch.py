"""One replica that is probed: the questions, and what is made of the answers.

A probe is ``/health``, then ``/metrics`` on the same kept connection, and once a minute and after
each start ``/v1/models``, more often while that lacks the model. Everything is bounded in time and
size, and what cannot be read counts as not said: an engine without metrics is as good as any.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from backends.errors import BackendError
from backends.http_pool import Endpoint
from backends.vllm.ask import ask
from backends.vllm.metrics import NO_METRICS, EngineMetrics, parse_metrics
from backends.vllm.model_list import EngineFacts, parse_model_list
from routing.agent_watch import AgentWatch
from routing.ask_health import ask_health
from routing.replica_state import Health, ProbeResult, ReplicaTracker, Traffic
from routing.types import ReplicaState

_FACTS_SECONDS = 60.0
_MISSING_MODEL_SECONDS = 5.0  # until an engine is asked again that does not list our model
_UNTOLD_SECONDS = 60.0  # what an engine does not have (404) is asked for again so much later
_DOUBT_SHARE = 0.25  # of the interval, until it is clear whether a replica has failed
_DOUBT_PATIENCE = 0.5  # of the time that a question has, once one was not answered in all of it
_JITTER = 0.1
_SOONEST_SECONDS = 0.05  # between two probes, however many requests fail meanwhile
_SMALL_BYTES = 64 * 1024
_MODELS_BYTES = 1024 * 1024
_METRICS_BYTES = 4 * 1024 * 1024

# What its agent says of an engine that it has stopped, or is about to: a request has it started anew.
_GONE_BY_PLAN = (ReplicaState.SLEEPING, ReplicaState.DRAINING)

_log = logging.getLogger(__name__)


class ProbedView(Protocol):
    """What a prober writes of a replica."""

    state: ReplicaState
    engine_running: int | None
    engine_waiting: int | None
    kv_usage: float | None
    kv_capacity_tokens: int | None
    loaded_adapters: frozenset[str] | None
    probed_at: float | None  # the event loop's clock
    in_flight: int
    waiting_requests: int  # of them, those without a first token

    @property
    def is_draining(self) -> bool:
        """Whether the Snapshot says that it drains."""


class Lines(Protocol):
    """The connections that requests have to a replica."""

    last_received_at: float  # anything, on any of them; the event loop's clock


class _SleepState(msgspec.Struct):
    is_sleeping: bool


_decode_sleep_state = msgspec.json.Decoder(_SleepState).decode


@dataclass(frozen=True, slots=True)
class ProbeTimes:
    """How often and how patiently; seconds."""

    interval_seconds: float = 1.0
    timeout_seconds: float = 2.0  # of each question


class ReplicaWatch:
    """One replica that is watched; :attr:`facts` is what its engine last said it serves."""

    def __init__(
        self,
        replica_id: str,
        endpoint: Endpoint,
        view: ProbedView,
        *,
        wants_sleep_state: bool,
        on_facts: Callable[[EngineFacts], None] | None,
        times: ProbeTimes,
        agent: AgentWatch | None = None,
        model: str | None = None,
        lines: Lines | None = None,
    ) -> None:
        self.replica_id = replica_id
        self._model = model
        self._lines = lines
        self.facts: EngineFacts | None = None
        self.metrics: EngineMetrics = NO_METRICS
        self.task: asyncio.Task[None] | None = None
        self.wants_sleep_state = wants_sleep_state
        self._agent = agent
        self._endpoint = endpoint
        self._on_facts = on_facts
        self._view = view
        self._times = times
        self._tracker = ReplicaTracker()
        self._soon = asyncio.Event()
        self._again: asyncio.Task[None] | None = None
        self._facts_due_at = 0.0
        self._metrics_due_at = 0.0
        self._sleep_state_due_at = 0.0
        self._tracker.is_draining = view.is_draining
        view.state = self._tracker.state

    # What the request path and the waker tell.

    def note_success(self) -> None:
        """A request got output from this replica."""
        if not self._tracker.failed_probes and self._view.state is ReplicaState.READY:
            return  # nearly always so, and nothing to change
        self._tracker.note_success()
        self._view.state = self._tracker.state

    def note_connect_failure(self) -> None:
        """A request could not connect: the next probe comes at once."""
        self._soon.set()

    def note_engine_drains(self) -> None:
        """The engine refused a request because it is about to stop."""
        self._tracker.note_engine_drains()
        self._view.state = self._tracker.state

    def expect_start(self, limit_seconds: float) -> None:
        """We have it started or woken; probed at once, and asked anew what it serves."""
        self._tracker.expect_start(asyncio.get_running_loop().time(), limit_seconds)
        self._view.state = self._tracker.state
        self._facts_due_at = 0.0
        self._soon.set()

    def expect_sleep(self, *, is_stopped: bool) -> None:
        """We have put it to sleep; ``is_stopped``: its process has ended."""
        self._tracker.expect_sleep(is_stopped=is_stopped)
        self._view.state = self._tracker.state

    @property
    def is_asleep_inside(self) -> bool:
        """Whether its process lives and sleeps: it takes requests, and holds them until it is woken."""
        return self._view.state is ReplicaState.SLEEPING and not self._tracker.is_stopped

    @property
    def is_silent(self) -> bool:
        """Whether it has failed and answers nothing: what it holds will hardly be answered."""
        return self._tracker.is_silent

    # What the prober calls.

    def close(self) -> None:
        """Let go of the connections that are kept."""
        self._endpoint.close()
        if self._agent is not None:
            self._agent.close()

    async def wait(self, interval_seconds: float) -> None:
        """Wait until the next probe is due."""
        if self._tracker.is_in_doubt:
            interval_seconds *= _DOUBT_SHARE
        delay = interval_seconds * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311
        soonest = min(delay, _SOONEST_SECONDS)
        await asyncio.sleep(soonest)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay - soonest):
                await self._soon.wait()
        self._soon.clear()

    async def probe_again(self) -> None:
        """Ask out of turn; however many want that at once, the engine is asked once."""
        if self._again is None or self._again.done():
            self._again = asyncio.create_task(self.probe())
        await asyncio.shield(self._again)

    async def probe(self) -> None:
        """Ask once, and write what was said."""
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        share = _DOUBT_PATIENCE if self._tracker.is_doubted_silent else 1.0
        health = await ask_health(self._endpoint, self._times.timeout_seconds * share)
        traffic = self._hear_traffic(begun_at)
        metrics, is_asleep = NO_METRICS, None
        if self._agent is not None:
            if health is Health.OK:
                await self._agent.tell()
            else:
                state = await self._agent.find_state()
                if state in _GONE_BY_PLAN:
                    before = self._view.state
                    self.expect_sleep(is_stopped=True)
                    self._view.probed_at = loop.time()
                    self._log_change(before)
                    return
                if state == ReplicaState.STARTING:
                    health = Health.NOT_READY
        if health is Health.OK:
            metrics = await self._ask_metrics()
            is_asleep = metrics.is_asleep
            if is_asleep is None and self.wants_sleep_state:
                is_asleep = await self._ask_sleep_state()
        now = loop.time()
        load = (metrics.running, metrics.waiting, metrics.kv_usage)
        self._write(ProbeResult(now, health, *load, is_asleep, traffic), metrics)
        if health is Health.OK and not is_asleep and now >= self._facts_due_at:
            await self._ask_facts()

    def _hear_traffic(self, since: float) -> Traffic:
        if self._lines is not None and self._lines.last_received_at >= since:
            return Traffic.HEARD
        has_begun = self._view.in_flight > self._view.waiting_requests
        return Traffic.STOPPED if has_begun else Traffic.NOTHING_TOLD

    def _write(self, result: ProbeResult, metrics: EngineMetrics) -> None:
        view, before = self._view, self._view.state
        self._tracker.is_draining = view.is_draining
        view.state = self._tracker.observe(result)
        view.probed_at = result.at
        view.engine_running = metrics.running
        view.engine_waiting = metrics.waiting
        view.kv_usage = metrics.kv_usage
        if result.health is Health.OK:
            self.metrics = metrics
            view.kv_capacity_tokens = metrics.kv_capacity_tokens
            view.loaded_adapters = None if metrics.is_empty else frozenset(metrics.adapters)
        else:
            self._facts_due_at = 0.0  # another may come back in its place
        self._log_change(before)

    def _log_change(self, before: ReplicaState) -> None:
        if self._view.state is not before:
            _log.info("replica %s: %s, was %s", self.replica_id, self._view.state, before)

    async def _ask_metrics(self) -> EngineMetrics:
        """Return the engine's metrics; none of one that has none, which is no failure."""
        now = asyncio.get_running_loop().time()
        if now < self._metrics_due_at:
            return NO_METRICS
        try:
            status, page = await self._get("/metrics", _METRICS_BYTES)
        except BackendError:
            return NO_METRICS
        if status == 200:
            return parse_metrics(page)
        self._metrics_due_at = now + _UNTOLD_SECONDS
        return NO_METRICS

    async def _ask_sleep_state(self) -> bool | None:
        """Return whether vLLM in dev mode sleeps; None where it does not tell."""
        now = asyncio.get_running_loop().time()
        if now < self._sleep_state_due_at:
            return None
        try:
            status, body = await self._get("/is_sleeping", _SMALL_BYTES)
            if status == 200:
                return _decode_sleep_state(body).is_sleeping
        except (BackendError, msgspec.DecodeError, UnicodeDecodeError):
            return None
        self._sleep_state_due_at = now + _UNTOLD_SECONDS
        return None

    async def _ask_facts(self) -> None:
        now = asyncio.get_running_loop().time()
        self._facts_due_at = now + _FACTS_SECONDS
        try:
            status, body = await self._get("/v1/models", _MODELS_BYTES)
        except BackendError:
            return
        facts = parse_model_list(body) if status == 200 else None
        if facts is not None and facts != self.facts:
            self.facts = facts
            if self._on_facts is not None:
                self._on_facts(facts)
            if self._model is not None:
                self._tracker.is_model_missing = facts.names_others_than(self._model)
                before, self._view.state = self._view.state, self._tracker.state
                self._log_change(before)
        if self._tracker.is_model_missing:
            self._facts_due_at = now + _MISSING_MODEL_SECONDS

    async def _get(self, path: str, limit_bytes: int) -> tuple[int, bytes]:
        seconds = self._times.timeout_seconds
        answered = await ask(
            self._endpoint, "GET", path, timeout_seconds=seconds, limit_bytes=limit_bytes
        )
        return answered.status, answered.body
