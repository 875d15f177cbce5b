"""All workers' pages as one page of Prometheus' text format, version 0.0.4."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gateway.dataplane.metrics.counter_page import CounterPage
from gateway.dataplane.metrics.families import FAMILIES, Family
from gateway.dataplane.metrics.worker_state import WorkerState, decode_state
from routing.circuit_breaker import BreakerState
from routing.types import ReplicaState

LIMITER_MODES = ("alone", "shared")

_Series = dict[tuple[str, ...], float]  # by label values
_Gauge = tuple[str, str, tuple[str, ...], _Series]  # name, help, label names


def render_page(pages: Sequence[CounterPage], *, journal_bytes: int) -> str:
    """Return the sums over ``pages``; ``journal_bytes`` is what the journals take on the disk."""
    lines: list[str] = []
    sums = _sum_counters(pages)
    for family in FAMILIES:
        kind = "histogram" if family.bounds_us else "counter"
        lines += _head(family.name, kind, family.text)
        for labels, values in sorted(sums.get(family.name, {}).items()):
            lines += _sample_lines(family, labels, values)
    states = [state for page in pages if (state := _state_of(page)) is not None]
    for name, text, names, series in _gauges(states, journal_bytes):
        lines += _head(name, "gauge", text)
        lines += [
            f"{name}{_labels(names, labels)} {value:.15g}" for labels, value in series.items()
        ]
    return "\n".join(lines) + "\n"


def _sum_counters(pages: Iterable[CounterPage]) -> dict[str, dict[tuple[str, ...], list[int]]]:
    sums: dict[str, dict[tuple[str, ...], list[int]]] = {}
    for page in pages:
        for family, labels, values in page.series():
            known = sums.setdefault(family.name, {}).get(labels)
            if known is not None:
                values = [one + other for one, other in zip(known, values, strict=True)]  # noqa: PLW2901
            sums[family.name][labels] = values
    return sums


def _sample_lines(family: Family, labels: tuple[str, ...], values: list[int]) -> Iterator[str]:
    if not family.bounds_us:
        yield f"{family.name}{_labels(family.labels, labels)} {values[0]}"
        return
    *buckets, span = values
    names, total = (*family.labels, "le"), 0
    for bound, count in zip((*family.bounds_us, None), buckets, strict=True):
        total += count
        limit = "+Inf" if bound is None else f"{bound / 1_000_000:g}"
        yield f"{family.name}_bucket{_labels(names, (*labels, limit))} {total}"
    tail = _labels(family.labels, labels)
    yield f"{family.name}_sum{tail} {span / 1_000_000:.15g}"
    yield f"{family.name}_count{tail} {total}"


def _gauges(states: list[WorkerState], journal_bytes: int) -> Iterator[_Gauge]:
    yield from _load_gauges(states)
    yield from _replica_gauges(states)
    yield from _own_gauges(states, journal_bytes)


def _load_gauges(states: list[WorkerState]) -> Iterator[_Gauge]:
    waiting: _Series = {}
    for state in states:
        for name, count in state.waiting.items():
            waiting[name,] = waiting.get((name,), 0) + count
    yield "forebay_workers", "Workers that serve.", (), {(): len(states)}
    yield (
        "forebay_requests_in_flight",
        "Requests that are admitted and not settled.",
        (),
        {(): sum(state.in_flight for state in states)},
    )
    yield (
        "forebay_queue_waiting_requests",
        "Requests that wait for a place at a saturated deployment.",
        ("deployment",),
        waiting,
    )


def _replica_gauges(states: list[WorkerState]) -> Iterator[_Gauge]:
    labels = ("deployment", "replica")
    replicas, breakers, loads = _by_replica(states)
    yield (
        "forebay_replica_requests_in_flight",
        "Requests at a replica, of this data plane.",
        labels,
        loads,
    )
    yield (
        "forebay_replica_state",
        "How many workers see a replica in a state.",
        (*labels, "state"),
        replicas,
    )
    yield (
        "forebay_breaker_state",
        "How many workers have a replica's circuit breaker in a state.",
        (*labels, "state"),
        breakers,
    )


def _own_gauges(states: list[WorkerState], journal_bytes: int) -> Iterator[_Gauge]:
    modes: _Series = dict.fromkeys(((mode,) for mode in LIMITER_MODES), 0.0)
    for state in states:
        modes[state.limiter_mode,] += 1
    yield (
        "forebay_limiter_mode",
        "How many workers decide on limits and money together with others, or alone.",
        ("mode",),
        modes,
    )
    yield (
        "forebay_journal_open_records",
        "Requests with an open record and no close record, of running workers.",
        (),
        {(): sum(state.open_records for state in states)},
    )
    yield "forebay_journal_bytes", "Journals on the disk.", (), {(): journal_bytes}
    served = [
        (state.snapshot_version, state.snapshot_published_at_us)
        for state in states
        if state.snapshot_version is not None
    ]
    version, published_at_us = min(served, default=(0, 0))
    age = max(time.time() - published_at_us / 1_000_000, 0.0)
    yield (
        "forebay_snapshot_version",
        "The oldest Snapshot that a worker serves.",
        (),
        {(): version} if served else {},
    )
    yield (
        "forebay_snapshot_age_seconds",
        "Since the oldest Snapshot that a worker serves was published.",
        (),
        {(): age} if served else {},
    )


def _by_replica(states: list[WorkerState]) -> tuple[_Series, _Series, _Series]:
    """Return by deployment, replica and state: states, breakers; by the first two: loads."""
    replicas: _Series = {}
    breakers: _Series = {}
    loads: _Series = {}
    for state in states:
        for one in state.replicas:
            key = (one.deployment, one.replica)
            if key not in loads:
                replicas.update({(*key, state.value): 0 for state in ReplicaState})
                breakers.update({(*key, state.value): 0 for state in BreakerState})
            loads[key] = loads.get(key, 0) + one.in_flight
            replicas[*key, one.state] += 1
            breakers[*key, one.breaker] += 1
    return replicas, breakers, loads


def _state_of(page: CounterPage) -> WorkerState | None:
    data = page.read_state()
    if data is None:
        return None
    try:
        return decode_state(data)
    except msgspec.DecodeError:  # read in the middle of a write
        return None


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _labels(names: Iterable[str], values: Iterable[str]) -> str:
    told = ",".join(f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{told}}}" if told else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
