"""An engine's counters between two moments, without a restart between them. Pure.

Several replicas may be one engine: each LoRA adapter is a deployment of its own, with a replica at
the engine of its base model. The counters are the engine's, whoever asked it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime


@dataclass(frozen=True, slots=True)
class EngineCounts:
    """Counters since the engine's start."""

    input_tokens: int
    output_tokens: int
    requests: int  # ended by themselves; aborted ones are not among them

    def is_below(self, other: EngineCounts) -> bool:
        """Whether any counter is smaller than in ``other``: then it began anew in between."""
        return (
            self.input_tokens < other.input_tokens
            or self.output_tokens < other.output_tokens
            or self.requests < other.requests
        )


@dataclass(frozen=True, slots=True, order=True)
class EngineReplica:
    """One of the replicas that an engine is."""

    replica_id: str
    deployment_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterSample:
    """What one engine said at one moment; ``in_flight``: requests running and waiting there."""

    engine_url: str  # one text for each engine, however its address is written
    replicas: tuple[EngineReplica, ...]  # that it is then, in order
    at: datetime
    counts: EngineCounts
    in_flight: int
    engine_started_at: datetime | None  # None: it does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterSpan:
    """An engine's counters at two moments of one run; they may be the same one."""

    engine_url: str
    replicas: tuple[EngineReplica, ...]
    from_at: datetime
    to_at: datetime
    from_counts: EngineCounts
    to_counts: EngineCounts
    in_flight: int  # at the end
    engine_started_at: datetime | None


def extend_span(span: CounterSpan | None, sample: CounterSample) -> CounterSpan:
    """Return the span that the sample ends: ``span`` grown, the one after it, or a first one.

    ``span`` is the engine's latest. A span is of one hour, that of its end; after a restart, or
    once the engine is other replicas, a new one begins with nothing known from before.
    """
    if span is None:
        return _begin(sample)
    if sample.at <= span.to_at:
        return span  # somebody else was here first, or the clock was set back
    if _is_broken(span, sample):
        return _begin(sample)
    if span.from_at == span.to_at or hour_of(span.to_at) == hour_of(sample.at):
        return replace(span, to_at=sample.at, to_counts=sample.counts, in_flight=sample.in_flight)
    return replace(
        span,
        from_at=span.to_at,
        from_counts=span.to_counts,
        to_at=sample.at,
        to_counts=sample.counts,
        in_flight=sample.in_flight,
    )


def hour_of(at: datetime) -> datetime:
    """Return the beginning of its hour."""
    return at.replace(minute=0, second=0, microsecond=0)


def _is_broken(span: CounterSpan, sample: CounterSample) -> bool:
    """Whether the sample is of another run of the engine, or of other replicas."""
    return (
        sample.replicas != span.replicas
        or sample.engine_started_at != span.engine_started_at
        or sample.counts.is_below(span.to_counts)
    )


def _begin(sample: CounterSample) -> CounterSpan:
    return CounterSpan(
        engine_url=sample.engine_url,
        replicas=sample.replicas,
        from_at=sample.at,
        to_at=sample.at,
        from_counts=sample.counts,
        to_counts=sample.counts,
        in_flight=sample.in_flight,
        engine_started_at=sample.engine_started_at,
    )
