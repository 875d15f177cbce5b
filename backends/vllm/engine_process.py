"""One engine process, kept as wanted: awake, asleep or ended.

One task, :meth:`EngineProcess.run`, does everything; whoever wants something only says so and wakes
it, so fifty wakes at once are one. What is wanted may change at any moment, also in the middle of a
start: the task finds out at its next step.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import Any

from backends.errors import BackendError
from backends.http_pool import Endpoint
from backends.vllm.activity import Activity
from backends.vllm.engine_types import (
    EngineStartError,
    EngineState,
    Launcher,
    Policy,
    Process,
)
from backends.vllm.launch import SleepDepth
from backends.vllm.probe_engine import find_metrics, is_healthy
from backends.vllm.restart_wait import get_restart_wait
from backends.vllm.vllm_sleep import put_to_sleep, wake_up
from backends.vllm.wake_times import WakeTimes

_POLL_SECONDS = 0.1
_SICK_PROBES = 3  # failed in a row: not ready any more
_TELL_EVERY_SECONDS = 10.0
_SIGNALS_FROM = 128  # exit codes above it are signals
_START, _INSIDE = "start", "inside"  # kinds of wake: of the process, of vLLM in it


class EngineProcess:
    """Owns the process. Everything but :meth:`run` returns at once."""

    def __init__(self, launcher: Launcher, endpoint: Endpoint, policy: Policy) -> None:
        self._launcher = launcher
        self._endpoint = endpoint
        self.policy = policy
        self.wake_times = WakeTimes()
        self.state = EngineState.SLEEPING if policy.begins_asleep else EngineState.STARTING
        self.since_at = time.time()
        self.reason: str | None = None  # why it failed last; None while all is well
        self.deaths = 0  # in a row
        self._is_wanted = not policy.begins_asleep
        self._is_asleep = False  # inside a living process
        self._kind = _START  # of the wake that is under way, or was last
        self._changed = asyncio.Event()
        self._ending = asyncio.Event()
        self._process: Process | None = None
        self._begun_at = self._ready_at = self._restart_at = self._told_at = 0.0
        self._sick_probes = 0
        self._activity = Activity(time.monotonic())

    @property
    def pid(self) -> int | None:
        """Return the process's id; None while there is none."""
        return None if self._process is None else self._process.pid

    @property
    def wake_seconds(self) -> float | None:
        """Return how long the next wake will probably take; None if none was measured."""
        return self.wake_times.find(self._next_kind())

    @property
    def wake_left_seconds(self) -> float | None:
        """Return how long until it is probably ready; 0 when it is, None when nobody knows."""
        if self.state is EngineState.READY:
            return 0.0
        elapsed = 0.0
        if self.state is EngineState.STARTING and self._begun_at:
            elapsed = time.monotonic() - self._begun_at
        return self.wake_times.find_left(self._next_kind(), elapsed)

    def wake(self) -> None:
        """Have it serve. Idempotent."""
        self._is_wanted = True
        self._activity.restart(time.monotonic())
        self._changed.set()

    def sleep(self) -> None:
        """Have it end what it runs and sleep. Idempotent."""
        self._is_wanted = False
        self._changed.set()

    def end(self) -> None:
        """Have it drain and end, and :meth:`run` return; a second time: at once."""
        if self._ending.is_set() and self._process is not None:
            self._process.kill()
        self._ending.set()
        self._changed.set()

    async def run(self) -> None:
        """Keep it as wanted until :meth:`end`."""
        try:
            while not self._ending.is_set():
                await self._step()
        finally:
            await self._stop()

    async def _step(self) -> None:
        if self._process is None:
            await self._while_gone()
            return
        code = await asyncio.to_thread(self._process.find_exit_code)
        if code is not None:
            self._note_death(code)
        elif self._is_asleep:
            await self._while_asleep()
        elif not self._is_wanted:
            await self._fall_asleep()
        elif self.state is EngineState.STARTING:
            await self._while_starting()
        else:
            await self._while_awake()

    async def _while_gone(self) -> None:
        now = time.monotonic()
        if not self._is_wanted:
            self._become(EngineState.SLEEPING)
            await self._pause(None)
        elif now < self._restart_at:
            await self._pause(self._restart_at - now)
        else:
            self._become(EngineState.STARTING)
            self._begun_at = self._told_at = now
            self._kind = _START
            try:
                self._process = await asyncio.to_thread(self._launcher.start)
            except (EngineStartError, OSError) as error:
                self._note_failure(str(error))

    async def _while_starting(self) -> None:
        now = time.monotonic()
        if await is_healthy(self._endpoint):
            seconds = now - self._begun_at
            self.wake_times.note(self._kind, seconds)
            self._ready_at = now
            self._sick_probes = 0
            self._activity = Activity(now)
            self.reason = None
            self._become(EngineState.READY)
            self._launcher.say(f"ready after {seconds:.1f} s")
            return
        if now - self._begun_at > self.policy.start_limit_seconds:
            await self._stop()
            self._note_failure(f"not ready after {self.policy.start_limit_seconds:g} s")
            return
        if now - self._told_at >= _TELL_EVERY_SECONDS:
            self._told_at = now
            said = self._launcher.explain()
            self._launcher.say(f"starting for {now - self._begun_at:.0f} s: {said or '…'}")
        await self._pause(_POLL_SECONDS)

    async def _while_awake(self) -> None:
        if await is_healthy(self._endpoint):
            self._sick_probes = 0
            if self.state is not EngineState.READY:
                self.reason = None
                self._become(EngineState.READY)
        else:
            self._sick_probes += 1
            if self._sick_probes == _SICK_PROBES:
                self._become(EngineState.FAILED)
                self.reason = "it runs and does not answer /health"
                self._launcher.say(self.reason)
        limit = self.policy.keep_warm_seconds
        if limit is not None:
            self._activity.note(await find_metrics(self._endpoint), time.monotonic())
            if self._activity.find_idle_seconds(time.monotonic()) >= limit:
                self._launcher.say(f"no request for {limit:g} s; going to sleep")
                self.sleep()
                return
        await self._pause(self.policy.probe_seconds)

    async def _while_asleep(self) -> None:
        if self._is_wanted:
            await self._wake_inside()
            return
        # Somebody asked it behind our back, between our last look and its sleep: serve him.
        metrics = await find_metrics(self._endpoint)
        if metrics is not None and (metrics.running or metrics.waiting):
            self._launcher.say("a request waits in the sleeping engine; waking it")
            self.wake()
            return
        await self._pause(self.policy.probe_seconds)

    async def _wake_inside(self) -> None:
        self._become(EngineState.STARTING)
        self._begun_at = self._told_at = time.monotonic()
        self._kind = _INSIDE
        limit = self.policy.start_limit_seconds
        try:
            await self._unless_ending(
                wake_up(self._endpoint, self.policy.sleep, timeout_seconds=limit)
            )
        except BackendError as error:
            self._launcher.say(f"cannot be woken ({error}); starting it anew")
            await self._stop()
            return
        self._is_asleep = False

    async def _fall_asleep(self) -> None:
        depth = self.policy.sleep
        can_level = self.state is EngineState.READY and depth is not SleepDepth.STOP
        self._become(EngineState.DRAINING)
        if not can_level:
            await self._stop()
            return
        limit = self.policy.stop_limit_seconds
        try:
            await self._unless_ending(put_to_sleep(self._endpoint, depth, timeout_seconds=limit))
        except BackendError as error:
            self._launcher.say(f"cannot be put to sleep ({error}); stopping it")
            await self._stop()
            return
        self._is_asleep = True
        self._become(EngineState.SLEEPING)
        self._launcher.say(f"asleep ({depth.value})")

    async def _stop(self) -> None:
        """End the process, if there is one, and wait for its end."""
        process = self._process
        if process is None:
            return
        self._become(EngineState.DRAINING)
        process.ask_to_stop()
        kill_at = time.monotonic() + self.policy.stop_limit_seconds
        while await asyncio.to_thread(process.find_exit_code) is None:
            if time.monotonic() > kill_at:
                process.kill()
            await asyncio.sleep(_POLL_SECONDS)
        self._process = None
        self._is_asleep = False
        self._launcher.say("stopped")

    def _note_death(self, code: int) -> None:
        self._process = None
        was_asleep, self._is_asleep = self._is_asleep, False
        if was_asleep or not self._is_wanted:
            self._launcher.say("ended while nobody needed it")
            return
        ready_seconds = time.monotonic() - self._ready_at
        if self.state is not EngineState.STARTING and ready_seconds > self.policy.steady_seconds:
            self.deaths = 0
        if code > _SIGNALS_FROM:
            self._note_failure(f"killed by signal {code - _SIGNALS_FROM}")
        else:
            self._note_failure(f"ended with code {code}: {self._launcher.explain() or '?'}")

    def _note_failure(self, reason: str) -> None:
        self.deaths += 1
        wait = get_restart_wait(
            self.deaths,
            first_seconds=self.policy.first_wait_seconds,
            most_seconds=self.policy.most_wait_seconds,
        )
        self._restart_at = time.monotonic() + wait
        self.reason = reason
        self._become(EngineState.FAILED)
        self._launcher.say(
            f"{reason}; starting it again in {wait:.1f} s (failure {self.deaths} in a row)"
        )

    def _next_kind(self) -> str:  # under way, or the one that would come next
        if self.state is EngineState.STARTING:
            return self._kind
        has_process = self._process is not None and self.state is not EngineState.FAILED
        return _INSIDE if has_process and self.policy.sleep is not SleepDepth.STOP else _START

    def _become(self, state: EngineState) -> None:
        if state is not self.state:
            self.state = state
            self.since_at = time.time()

    async def _pause(self, seconds: float | None) -> None:
        """Wait until something else is wanted, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    async def _unless_ending(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what may take long; give it up when the end is wanted. Raises as ``work`` does."""
        task = asyncio.ensure_future(work)
        end = asyncio.ensure_future(self._ending.wait())
        try:
            await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise BackendError("it is to end")
            task.result()
        finally:
            task.cancel()
            end.cancel()
