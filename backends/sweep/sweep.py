"""A sweep: one load after the other, each warmed up, measured, and waited for; then the knee.

The load is kept up until all requests that were due in the window have ended: those that would
otherwise be left out are the long ones.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from backends.sweep.client_watch import ClientWatch
from backends.sweep.engine_target import Target
from backends.sweep.figures import ANY_TIME, Slo, StepFigures, Window, measure
from backends.sweep.knee import Knee, LoadPoint, find_closed_knee, find_open_knee
from backends.sweep.loads import ClosedLoop, Load, OpenLoop
from backends.sweep.outcome import Ask, Failure
from backends.sweep.percentiles import quantile
from backends.sweep.saturation import (
    ClientLoad,
    Flow,
    is_flat,
    is_over_saturated,
    mostly_fails,
)
from backends.sweep.under_way import UnderWay

_TICK_SECONDS = 0.1
_RUNNING = 1000  # requests of which the running p95 is
# Of the knee, measured once it is known roughly; nearest first.
_REFINED = {False: (1.0, 0.75, 1.25, 0.5), True: (0.95, 0.8, 0.9, 0.6)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """What is done. ``loads``: rising; clients, or with ``is_open`` requests a second."""

    is_open: bool
    loads: tuple[float, ...]
    seconds: float  # of a window, at least
    requests: int  # that end in a window, at least
    max_seconds: float  # of a window, and of each wait beside it
    warm_up_seconds: float
    refine: int = 2  # more steps near the knee
    slo: Slo = ANY_TIME
    max_lag_ms: float = 10.0  # of the client's event loop, p95
    max_under_way: int = 4096  # requests of an open loop
    stops_early: bool = True
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One load that was held."""

    load: float
    figures: StepFigures
    flow: Flow
    client: ClientLoad
    client_fault: str | None
    is_over_saturated: bool
    window_seconds: float

    @property
    def tells_of_engine(self) -> bool:
        """Whether the engine is what was measured: not the client, nor how it refuses."""
        return self.client_fault is None and not self.has_failed

    @property
    def has_failed(self) -> bool:
        """Whether too few were answered for any reason but the load's: an engine that answers all the
        while, with so long a queue before it that nothing of the window came to its end, is overrun."""
        figures = self.figures
        is_overrun = (
            self.is_over_saturated
            and figures.rates.requests.value > 0
            and not set(figures.failures) - {Failure.NOT_SENT}
        )
        return not is_overrun and mostly_fails(figures.failures, figures.completed)

    @property
    def offered_per_second(self) -> float:
        """Requests that became due in the window, a second."""
        return self.figures.requests / self.window_seconds


class Progress(Protocol):
    """Who is told how it goes."""

    def begin_step(self, number: int, load: float) -> None:
        """A load is taken up; the first is number 1."""

    def tick(self, share: float, per_second: float, p95_ms: float | None, under_way: int) -> None:
        """How much of the window is over, and what it gave so far; p95 is of E2E."""

    def end_step(self, step: Step) -> None:
        """A step is measured."""


@dataclass(slots=True)
class SweepResult:
    """What was measured; grows while the sweep runs. ``steps``: in the order of measuring."""

    plan: SweepPlan
    steps: list[Step] = field(default_factory=list)
    stopped_because: str = "interrupted"

    def find_knee(self) -> Knee | None:
        """Return the knee of the steps in which the engine was what was measured; None of none."""
        rising = sorted(
            (step for step in self.steps if step.tells_of_engine), key=lambda step: step.load
        )
        if not rising:
            return None
        if self.plan.is_open:
            return find_open_knee(
                [
                    LoadPoint(step.load, step.figures.rates.requests, step.is_over_saturated)
                    for step in rising
                ]
            )
        points = [LoadPoint(step.load, step.figures.rates.output_tokens) for step in rising]
        return find_closed_knee(points, random.Random(self.plan.seed))  # noqa: S311 - no secret


class Sweep:
    """Runs a plan once."""

    def __init__(
        self,
        plan: SweepPlan,
        target: Target,
        asks: Iterator[Ask],
        *,
        clock: Callable[[], float],
        progress: Progress,
    ) -> None:
        self.result = SweepResult(plan)
        self._plan = plan
        self._clock = clock
        self._progress = progress
        self._rng = random.Random(plan.seed)  # noqa: S311 - no secret
        self._under_way = UnderWay(target, clock)
        self._watch = ClientWatch(clock)
        self._load: Load = (
            OpenLoop(self._under_way, asks, seed=plan.seed, max_under_way=plan.max_under_way)
            if plan.is_open
            else ClosedLoop(self._under_way, asks)
        )

    async def run(self) -> SweepResult:
        """Measure all steps; a cancelled sweep leaves those that are finished in ``result``."""
        self._watch.start()
        try:
            self.result.stopped_because = await self._rise() or "all loads were held"
            await self._refine()
        finally:
            self._watch.stop()
            await self._load.stop()
        return self.result

    async def _rise(self) -> str | None:
        """Hold the plan's loads; return why not all of them, if so."""
        steps = self.result.steps
        for load in self._plan.loads:
            step = await self._measure_step(load)
            if step.has_failed:
                worst = max(step.figures.failures.items(), key=lambda item: item[1], default=None)
                why = f"most of them {worst[0]}" if worst else "none ended in time"
                return f"requests fail at {load:g}: {why}"
            if step.client_fault is not None:
                return f"the client was the bottleneck at {load:g}: {step.client_fault}"
            if not self._plan.stops_early:
                continue
            if step.is_over_saturated:
                return f"over-saturated at {load:g}: the queue grows without bound"
            rates = [one.figures.rates.output_tokens.value for one in steps]
            if not self._plan.is_open and is_flat([one.load for one in steps], rates):
                return f"over-saturated at {load:g}: more clients give no more throughput"
        return None

    async def _refine(self) -> None:
        """Measure near the knee what the rising loads left out."""
        knee = self.result.find_knee()
        if knee is None or knee.load is None or not self._plan.stops_early:
            return
        held = {step.load for step in self.result.steps}
        for factor in _REFINED[self._plan.is_open][: self._plan.refine]:
            load = knee.load.value * factor
            load = load if self._plan.is_open else float(max(1, round(load)))
            if load not in held:
                held.add(load)
                await self._measure_step(load)

    async def _measure_step(self, load: float) -> Step:
        plan, under_way = self._plan, self._under_way
        self._progress.begin_step(len(self.result.steps) + 1, load)
        under_way.outcomes = []
        self._load.hold(load, plan.warm_up_seconds / 2)
        await self._warm_up()
        under_way.begin_window()
        self._watch.reset()
        begins_at = self._clock()
        await self._wait_for_window(begins_at)
        window = Window(begins_at, self._clock())
        client, flow = self._watch.read(), under_way.read_flow()
        await under_way.wait_for_due(window.ends_at, plan.max_seconds)
        unfinished = under_way.count_due(window.ends_at, since=window.begins_at)
        outcomes, under_way.outcomes = under_way.outcomes, []
        await self._load.end_step()
        figures = measure(outcomes, window, plan.slo, unfinished=unfinished, rng=self._rng)
        not_sent = figures.failures.get("not_sent", 0)
        step = Step(
            load,
            figures,
            flow,
            client,
            client.find_fault(plan.max_lag_ms),
            plan.is_open and is_over_saturated(flow, not_sent=not_sent),
            window.seconds,
        )
        self.result.steps.append(step)
        self._progress.end_step(step)
        return step

    async def _warm_up(self) -> None:
        """Wait for the plan's time, and until as many have ended as are under way: the mix of old
        and new requests is then about what it stays."""
        plan, under_way = self._plan, self._under_way
        began_at = self._clock()
        await asyncio.sleep(plan.warm_up_seconds)
        give_up_at = began_at + max(plan.max_seconds, plan.warm_up_seconds)
        while len(under_way.outcomes) < under_way.count:
            await asyncio.sleep(_TICK_SECONDS)
            if self._clock() >= give_up_at:
                return

    async def _wait_for_window(self, begins_at: float) -> None:
        plan = self._plan
        ended: list[float] = []  # spans of those that ended in the window, in ms
        seen = len(self._under_way.outcomes)
        while True:
            await asyncio.sleep(min(_TICK_SECONDS, plan.seconds / 10))
            passed = self._clock() - begins_at
            outcomes = self._under_way.outcomes
            ended += [one.e2e_seconds * 1000 for one in outcomes[seen:] if one.failure is None]
            seen = len(outcomes)
            share = min(passed / plan.seconds, len(ended) / max(plan.requests, 1))
            if share >= 1 or passed >= plan.max_seconds:
                return
            p95 = quantile(sorted(ended[-_RUNNING:]), 0.95) if ended else None
            self._progress.tick(share, len(ended) / passed, p95, self._under_way.count)
