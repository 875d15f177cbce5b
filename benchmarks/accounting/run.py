"""The two measurements, one after the other on one database, and the proof at the end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.accounting.offer_load import write_as_fast_as_settled, write_at_rate
from benchmarks.accounting.start_accounting import (
    SPAWN,
    accounting_database,
    cpu_seconds,
    running_worker,
)
from benchmarks.accounting.watch import SettlementWatch, percentile
from billing.reconciliation import verify

# Enough that the worker never waits for the writer, and a few segments at most.
_AHEAD_EVENTS = 40_000
_WATCH_INTERVAL_SECONDS = 0.02
_BEGIN_SECONDS = 60.0
_DRAIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure: warm-up and length in seconds, and the offered rate for the lag."""

    warm_up_seconds: float
    sustained_seconds: float
    lag_seconds: float
    lag_events_per_second: int


@dataclass(frozen=True, slots=True)
class SustainedRate:
    """Events per second from journal to commit, writer and database on the same machine."""

    events: int
    seconds: float
    events_per_second: float
    slowest_5_seconds_per_second: float
    worker_cores: float


@dataclass(frozen=True, slots=True)
class SettlementLag:
    """Milliseconds from the end of a request until its event can be read, at an offered rate."""

    events: int
    offered_per_second: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    worker_cores: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both figures, and whether ``billing verify`` was clean afterwards."""

    sustained: SustainedRate
    lag: SettlementLag
    is_clean: bool
    verify_lines: tuple[str, ...]
    verify_seconds: float


def run_benchmark(plan: Plan, directory: Path) -> Outcome:
    """Measure in ``directory``, which is left empty of processes."""
    journal_dir = directory / "journal"
    with accounting_database(directory) as database_url:
        with running_worker(database_url, journal_dir) as worker_id:
            sustained = _measure_sustained(plan, database_url, journal_dir, worker_id)
            lag = _measure_lag(plan, database_url, journal_dir, worker_id)
        begun = time.monotonic()
        report = verify(database_url)
        return Outcome(
            sustained=sustained,
            lag=lag,
            is_clean=report.is_clean and not report.dead_letters,
            verify_lines=tuple(map(str, report.lines)),
            verify_seconds=time.monotonic() - begun,
        )


def _measure_sustained(
    plan: Plan, database_url: str, journal_dir: Path, worker_id: int
) -> SustainedRate:
    settled, is_over = SPAWN.Value("q", 0), SPAWN.Value("i", 0)
    writer = SPAWN.Process(
        target=write_as_fast_as_settled, args=(journal_dir, settled, is_over, _AHEAD_EVENTS)
    )
    watch = SettlementWatch(database_url)
    writer.start()
    try:
        begin_by = time.monotonic() + _BEGIN_SECONDS
        while not settled.value and time.monotonic() < begin_by:  # the worker starts
            watch.watch(_WATCH_INTERVAL_SECONDS, _WATCH_INTERVAL_SECONDS, settled)
        watch.watch(plan.warm_up_seconds, _WATCH_INTERVAL_SECONDS, settled)
        first = watch.samples[-1]
        first_index = len(watch.samples) - 1
        cpu_before = cpu_seconds(worker_id)
        watch.watch(plan.sustained_seconds, _WATCH_INTERVAL_SECONDS, settled)
        last = watch.samples[-1]
        cpu_used = cpu_seconds(worker_id) - cpu_before
    finally:
        is_over.value = 1
        writer.join()
    _wait_until_drained(watch)
    watch.close()
    seconds = (last[0] - first[0]) / 1e6
    events = last[1] - first[1]
    return SustainedRate(
        events=events,
        seconds=seconds,
        events_per_second=events / seconds,
        slowest_5_seconds_per_second=_slowest(watch.samples[first_index:], 5.0),
        worker_cores=cpu_used / seconds,
    )


def _measure_lag(plan: Plan, database_url: str, journal_dir: Path, worker_id: int) -> SettlementLag:
    mirror, written = SPAWN.Value("q", 0), SPAWN.Value("q", -1)
    writer = SPAWN.Process(
        target=write_at_rate,
        args=(journal_dir, plan.lag_events_per_second, plan.lag_seconds, written),
    )
    watch = SettlementWatch(database_url)
    cpu_before, begun = cpu_seconds(worker_id), time.monotonic()
    writer.start()
    while written.value < 0 and writer.is_alive():
        watch.watch(0.2, _WATCH_INTERVAL_SECONDS, mirror)
    cores = (cpu_seconds(worker_id) - cpu_before) / (time.monotonic() - begun)
    writer.join()
    give_up_at = time.monotonic() + _DRAIN_SECONDS
    while watch.sample() < written.value and time.monotonic() < give_up_at:
        time.sleep(_WATCH_INTERVAL_SECONDS)
    lags = watch.lags_ms()
    watch.close()
    if len(lags) != written.value:
        raise RuntimeError(f"{written.value} events were written and {len(lags)} were settled")
    return SettlementLag(
        events=len(lags),
        offered_per_second=plan.lag_events_per_second,
        p50_ms=percentile(lags, 0.50),
        p95_ms=percentile(lags, 0.95),
        p99_ms=percentile(lags, 0.99),
        max_ms=lags[-1],
        worker_cores=cores,
    )


def _wait_until_drained(watch: SettlementWatch) -> None:
    """Wait until the count has stood still for three seconds: all that was written is stored."""
    give_up_at = time.monotonic() + _DRAIN_SECONDS
    before, still_seconds = -1, 0
    while still_seconds < 3 and time.monotonic() < give_up_at:
        now = watch.sample()
        still_seconds = still_seconds + 1 if now == before else 0
        before = now
        time.sleep(1.0)


def _slowest(samples: list[tuple[int, int]], window_seconds: float) -> float:
    """Return the lowest rate over any window of that length; the whole if it is shorter."""
    window_us = window_seconds * 1e6
    rates = []
    start = 0
    for index, (at_us, count) in enumerate(samples):
        while at_us - samples[start + 1][0] >= window_us and start + 1 < index:
            start += 1
        span = at_us - samples[start][0]
        if span >= window_us:
            rates.append((count - samples[start][1]) / (span / 1e6))
    if not rates:
        first, last = samples[0], samples[-1]
        return (last[1] - first[1]) / max((last[0] - first[0]) / 1e6, 1e-6)
    return min(rates)
