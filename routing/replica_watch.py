"""One replica that is probed: the questions, and what is made of the answers.

A probe is ``/health`` (:mod:`routing.ask_health`), then ``/metrics`` on the same kept connection, and
once a minute and after each start ``/v1/models``, more often while that lacks the model. Everything
is bounded in time and size, and what cannot be read counts as not said: an engine without metrics is
as good as any.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass

from backends.errors import BackendError
from backends.http_pool import Endpoint
from backends.vllm.metrics import NO_METRICS, EngineMetrics
from backends.vllm.model_list import EngineFacts, parse_model_list
from routing.agent_watch import AgentWatch
from routing.ask_health import Heard, Listening, ask_health
from routing.engine_pages import EnginePages
from routing.patience import Patience
from routing.probed_view import Lines, ProbedView
from routing.replica_state import Health, ProbeResult, ReplicaTracker
from routing.stall_watch import Held, Stall, StallWatch
from routing.types import ReplicaState

_FACTS_SECONDS = 60.0
_MISSING_MODEL_SECONDS = 5.0  # until an engine is asked again that does not list our model
_DOUBT_SHARE = 0.25  # of the interval, until it is clear whether a replica has failed
_MOST_PATIENCE = 1.4  # times the least
_SUSPECT_SECONDS = 2.0  # that nothing new is sent there: until it is looked at again, and more
_JITTER = 0.1  # at most so much sooner
_SOONEST_SECONDS = 0.05  # between two probes, however many requests fail meanwhile
_MODELS_BYTES = 1024 * 1024

# What its agent says of an engine that it has stopped, or is about to: a request has it started anew.
_GONE_BY_PLAN = (ReplicaState.SLEEPING, ReplicaState.DRAINING)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProbeTimes:
    """How often and how patiently; seconds."""

    interval_seconds: float = 1.0
    timeout_seconds: float = 2.0  # of each question but whether it serves still
    silence_seconds: float = 3.25  # an engine that served has failed when nothing comes for so long


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
        self._pages = EnginePages(endpoint, times.timeout_seconds)
        least = times.silence_seconds
        self._patience = Patience(least, least * _MOST_PATIENCE)
        self._tracker = ReplicaTracker()
        self._stall_watch = StallWatch()
        self._soon = asyncio.Event()
        self._again: asyncio.Task[None] | None = None
        self._facts_due_at = 0.0
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
        elif self._pages.silent_since is not None:
            interval_seconds = 0.0
        delay = interval_seconds * random.uniform(1 - _JITTER, 1)  # noqa: S311
        due_at = self._stall_watch.due_at
        if due_at is not None:
            delay = min(delay, max(due_at - asyncio.get_running_loop().time(), _SOONEST_SECONDS))
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
        asking: list[asyncio.Task[str | None]] = []  # of its agent, while the engine says nothing

        def ask_agent() -> None:
            if self._agent is not None and not asking:
                asking.append(asyncio.create_task(self._agent.find_state()))

        try:
            heard = await self._listen(on_doubt=ask_agent)
            health = heard.health
            metrics, is_asleep = NO_METRICS, None
            if health is Health.OK:
                metrics, is_asleep = await self._ask_more()
            else:
                ask_agent()
                state = await asking[0] if asking else None
                if state in _GONE_BY_PLAN:
                    before = self._view.state
                    self.expect_sleep(is_stopped=True)
                    self._view.probed_at = loop.time()
                    self._log_change(before)
                    return
                if state == ReplicaState.STARTING:
                    health = Health.NOT_READY
        finally:
            for task in asking:
                task.cancel()
        now = loop.time()
        load = (metrics.running, metrics.waiting, metrics.kv_usage)
        self._write(ProbeResult(now, health, *load, is_asleep, heard.has_traffic), metrics)
        is_silent = self._pages.silent_since is not None
        if health is Health.OK and not is_asleep and now >= self._facts_due_at and not is_silent:
            await self._ask_facts()

    async def _listen(self, *, on_doubt: Callable[[], None]) -> Heard:
        """Ask for its health, for as long as it takes to tell whether it is frozen."""
        now, times, lines = asyncio.get_running_loop().time(), self._times, self._lines
        quiet_seconds = self._patience.seconds(now)
        silent_since, self._pages.silent_since = self._pages.silent_since, None
        quiet_before, was_serving = 0.0, self._tracker.is_serving
        if not (was_serving or self._tracker.is_silent):
            quiet_seconds = times.timeout_seconds  # nobody waits for it, and it is not to be failed
        elif silent_since is not None and (lines is None or lines.last_received_at < silent_since):
            # What it has not answered counts, but its health gets the time of any question.
            quiet_before = min(now - silent_since, max(quiet_seconds - times.timeout_seconds, 0.0))
        heard = await ask_health(
            self._endpoint,
            Listening(quiet_seconds, times.timeout_seconds, quiet_before),
            last_received_at=lambda: 0.0 if lines is None else lines.last_received_at,
            on_doubt=on_doubt,
        )
        # A failed one that answers again was frozen: that it took long says nothing of its habit.
        if was_serving and (heard.health is not Health.SILENT or heard.has_traffic):
            self._patience.note(heard.seconds, asyncio.get_running_loop().time())
        return heard

    async def _ask_more(self) -> tuple[EngineMetrics, bool | None]:
        """Ask an engine that is well what else it says; its agent is told what it should know."""
        telling = None if self._agent is None else asyncio.create_task(self._agent.tell())
        try:
            metrics = await self._pages.ask_metrics()
            is_asleep = metrics.is_asleep
            if is_asleep is None and self.wants_sleep_state:
                is_asleep = await self._pages.ask_sleep_state()
            if telling is not None:
                await telling
        finally:
            if telling is not None:
                telling.cancel()
        return metrics, is_asleep

    def _write(self, result: ProbeResult, metrics: EngineMetrics) -> None:
        view, before = self._view, self._view.state
        self._tracker.is_draining = view.is_draining
        self._tracker.observe(result)
        self._look_for_stall(result, metrics)
        view.state = self._tracker.state
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

    def _look_for_stall(self, result: ProbeResult, metrics: EngineMetrics) -> None:
        view, lines = self._view, self._lines
        if lines is None:
            return  # nobody tells what requests get
        held = Held(
            in_flight=view.in_flight,
            waiting_requests=view.waiting_requests,
            waiting_since=view.waiting_since,
            waiting_input_tokens=view.waiting_input_tokens,
            ttft_seconds=view.ttft,
            seconds_a_token=view.seconds_a_token,
            last_received_at=lines.last_received_at,
        )
        is_awake = result.health is Health.OK and not result.is_asleep
        stall = self._stall_watch.observe(result.at, metrics if is_awake else NO_METRICS, held)
        was_stalled, is_stalled = self._tracker.is_stalled, stall is Stall.STALLED
        self._tracker.is_stalled = is_stalled
        if stall is Stall.SUSPECT:
            view.breaker.cool_down(_SUSPECT_SECONDS, result.at)
        if is_stalled and not was_stalled:
            _log.warning("replica %s says that it is well, and answers nothing", self.replica_id)
            view.breaker.trip(result.at)

    def _log_change(self, before: ReplicaState) -> None:
        if self._view.state is not before:
            _log.info("replica %s: %s, was %s", self.replica_id, self._view.state, before)

    async def _ask_facts(self) -> None:
        now = asyncio.get_running_loop().time()
        self._facts_due_at = now + _FACTS_SECONDS
        try:
            status, body = await self._pages.get("/v1/models", _MODELS_BYTES)
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
