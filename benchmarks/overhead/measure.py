"""The measurements: each loads one target once and returns figures by name.

A figure's name begins with its measurement's; spans end in ``_ms``. ``bad`` and ``answered`` count
requests and are summed over all measurements, everything else is a figure to average.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.overhead.errors import MeasurementError
from benchmarks.overhead.load_client import LoadClient, LoadResult, Quantiles
from benchmarks.overhead.observe import CpuObserver, CpuReading
from benchmarks.overhead.plan import Plan
from benchmarks.overhead.target import Target
from benchmarks.overhead.workload import Workload, Workloads

Figures = dict[str, float]

HELD_DELAY_MS = 20.0  # a stream is held while 99 % of its chunks arrive within this delay
_RAMP_SECONDS = 1.0
_LATE_SECONDS = 0.4  # streams that end later than this were not paced any more
_MARGIN_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What every measurement needs."""

    plan: Plan
    client: LoadClient
    workloads: Workloads
    observer: CpuObserver
    disturbances: list[float] = field(default_factory=list)  # share of a CPU that others used
    stolen: list[float] = field(default_factory=list)


def warm_up(bench: Bench, target: Target) -> Figures:
    """Load a target without timing it, so that its connections and caches exist."""
    plan, works = bench.plan, bench.workloads
    json = bench.client.run(target, works.json, connections=64, requests=plan.warm_up_requests)
    streams = bench.client.run(target, works.burst_continuous, connections=8, requests=32)
    return _counts(json, streams)


def measure_saturation(bench: Bench, target: Target) -> Figures:
    """Closed loop on many connections: requests/s, and latency there."""
    plan = bench.plan
    result, cpu = _observed(
        bench,
        target,
        lambda: bench.client.run(
            target,
            bench.workloads.json,
            connections=plan.saturation_connections,
            seconds=plan.saturation_seconds,
        ),
    )
    latency = _required(result.latency_ms, target, result)
    return {
        "sat_rps": result.rps,
        "sat_p50_ms": latency.p50,
        "sat_p99_ms": latency.p99,
        "sat_cpu": cpu,
        **_counts(result),
    }


def measure_one_connection(bench: Bench, target: Target) -> Figures:
    """One request after the other: the latency without any queue."""
    result, _ = _observed(
        bench,
        target,
        lambda: bench.client.run(
            target, bench.workloads.json, connections=1, seconds=bench.plan.one_connection_seconds
        ),
    )
    latency = _required(result.latency_ms, target, result)
    return {"one_p50_ms": latency.p50, "one_p99_ms": latency.p99, **_counts(result)}


def measure_rate(
    bench: Bench, target: Target, saturation_rps: float, name: str = "rate"
) -> Figures:
    """Open loop at a share of a saturation; latency from the intended moment."""
    plan = bench.plan
    rate = plan.rate_share * saturation_rps
    result, cpu = _observed(
        bench,
        target,
        lambda: bench.client.run(
            target,
            bench.workloads.json,
            connections=plan.saturation_connections,
            seconds=plan.rate_seconds,
            rate=rate,
        ),
    )
    latency = _required(result.latency_ms, target, result)
    return {
        f"{name}_rps": result.rps,
        f"{name}_p50_ms": latency.p50,
        f"{name}_p99_ms": latency.p99,
        f"{name}_cpu": cpu,
        **_counts(result),
    }


def measure_burst(bench: Bench, target: Target) -> Figures:
    """Streams that the engine sends at once: chunks/s, for each kind of engine that matters."""
    figures = _burst(bench, target, bench.workloads.burst, "burst")
    if target.asks_continuous_usage:
        continuous = _burst(bench, target, bench.workloads.burst_continuous, "burst_continuous")
        figures = add_figures(figures, continuous)
    return figures


def measure_paced(bench: Bench, target: Target) -> Figures:
    """Many streams at an engine's pace: how late chunks arrive, and what CPU that takes."""
    streams = bench.plan.paced_streams
    figures = _paced(bench, target, bench.workloads.paced, streams, "paced")
    if target.asks_continuous_usage:
        workload = bench.workloads.paced_continuous
        continuous = _paced(bench, target, workload, streams, "paced_continuous")
        figures = add_figures(figures, continuous)
    return figures


def measure_held(bench: Bench, target: Target) -> Figures:
    """The most concurrent paced streams that are held: none bad, none late, p99 within 20 ms."""
    figures = _held(bench, target, bench.workloads.paced, "held")
    if target.asks_continuous_usage:
        continuous = _held(bench, target, bench.workloads.paced_continuous, "held_continuous")
        figures = add_figures(figures, continuous)
    return figures


def add_figures(first: Figures, second: Figures) -> Figures:
    """Join two results: counts of requests are added, figures are kept side by side."""
    joined = first | second
    for count in ("answered", "bad"):
        joined[count] = first.get(count, 0) + second.get(count, 0)
    return joined


def _burst(bench: Bench, target: Target, workload: Workload, name: str) -> Figures:
    plan = bench.plan
    result, cpu = _observed(
        bench,
        target,
        lambda: bench.client.run(
            target, workload, connections=plan.burst_streams, seconds=plan.burst_seconds
        ),
    )
    return {f"{name}_chunks_s": result.chunks_s, f"{name}_cpu": cpu, **_counts(result)}


def _paced(bench: Bench, target: Target, workload: Workload, streams: int, name: str) -> Figures:
    run = _run_paced(bench, target, workload, streams)
    delay = _required(run.result.delay_ms, target, run.result)
    return {
        f"{name}_delay_p50_ms": delay.p50,
        f"{name}_delay_p99_ms": delay.p99,
        f"{name}_cpu": run.cpu,
        f"{name}_plateau_cpu": run.plateau_cpu,
        f"{name}_late_s": run.late_seconds,
        **_counts(run.result),
    }


@dataclass(frozen=True)
class _PacedRun:
    """What paced streams gave; CPU as shares of the target's core."""

    result: LoadResult
    cpu: float  # over the whole run, with its ramp and its end
    plateau_cpu: float  # while all streams run
    late_seconds: float  # beyond what the engine's pace takes

    @property
    def is_held(self) -> bool:
        """Every stream whole, and on time."""
        delay = self.result.delay_ms
        return (
            self.result.bad == 0
            and delay is not None
            and delay.p99 <= HELD_DELAY_MS
            and self.late_seconds <= _LATE_SECONDS
        )


def _run_paced(bench: Bench, target: Target, workload: Workload, streams: int) -> _PacedRun:
    plan = bench.plan
    ramp_seconds = min(_RAMP_SECONDS, plan.paced_seconds / 4)
    plateau: list[CpuReading] = []

    def take_reading() -> None:
        plateau.append(bench.observer.read(target.process))

    result, cpu = _observed(
        bench,
        target,
        lambda: bench.client.run(
            target,
            workload,
            connections=streams,
            requests=streams,
            ramp_seconds=ramp_seconds,
            calls=(
                (ramp_seconds + _MARGIN_SECONDS / 2, take_reading),
                (plan.paced_seconds - _MARGIN_SECONDS / 2, take_reading),
            ),
        ),
    )
    return _PacedRun(
        result=result,
        cpu=cpu,
        plateau_cpu=bench.observer.shares(*plateau).target,
        late_seconds=max(0.0, result.elapsed_s - plan.paced_seconds - ramp_seconds),
    )


def _held(bench: Bench, target: Target, workload: Workload, name: str) -> Figures:
    """Climb the steps until one is not held; below the first one, go down instead.

    Bad requests of the step that fails are the limit that was looked for, not an error of the run.
    """
    answered, held = 0, 0
    for streams in bench.plan.held_steps:
        run = _run_paced(bench, target, workload, streams)
        answered += run.result.answered
        if not run.is_held:
            break
        held = streams
    for streams in () if held else bench.plan.held_fallback_steps:
        run = _run_paced(bench, target, workload, streams)
        answered += run.result.answered
        if run.is_held:
            held = streams
            break
    return {f"{name}_streams": held, "answered": answered, "bad": 0}


def _observed(
    bench: Bench, target: Target, load: Callable[[], LoadResult]
) -> tuple[LoadResult, float]:
    """Return what ``load`` returns and the target's share of its CPU meanwhile."""
    before = bench.observer.read(target.process)
    result = load()
    shares = bench.observer.shares(before, bench.observer.read(target.process))
    bench.disturbances.append(shares.foreign)
    bench.stolen.append(shares.stolen)
    return result, shares.target


def _counts(*results: LoadResult) -> Figures:
    return {
        "answered": sum(result.answered for result in results),
        "bad": sum(result.bad for result in results),
    }


def _required(quantiles: Quantiles | None, target: Target, result: LoadResult) -> Quantiles:
    if quantiles is None:
        raise MeasurementError(f"{target.name} gave nothing to time: {result}")
    return quantiles
