"""One step's figures: percentiles, rates and goodput of what came of its requests. Pure.

Rates are counted inside the step's window. A request counts there with the part of its output that
came there, its tokens being spread evenly over its chunks: what was half done when the window
opened counts half, and whole generations that end together do not make a rate jump.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from backends.sweep.outcome import Outcome
from backends.sweep.percentiles import (
    SLICES,
    Estimate,
    cut_blocks,
    estimate_mean,
    estimate_of_blocks,
    estimate_percentiles,
    quantile,
)

FIGURES = ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms")


@dataclass(frozen=True, slots=True)
class Slo:
    """The longest times with which a request is good, in milliseconds. None: any."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None

    def is_met_by(self, outcome: Outcome) -> bool:
        """Whether a completed request is good."""
        tpot = outcome.tpot_seconds
        spans = (
            (self.ttft_ms, outcome.ttft_seconds),
            (self.tpot_ms, 0.0 if tpot is None else tpot),
            (self.e2e_ms, outcome.e2e_seconds),
        )
        return all(limit is None or seconds * 1000 <= limit for limit, seconds in spans)


ANY_TIME = Slo()


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which a step is measured."""

    begins_at: float
    ends_at: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.ends_at - self.begins_at


@dataclass(frozen=True, slots=True)
class Rates:
    """What came a second."""

    requests: Estimate
    input_tokens: Estimate
    output_tokens: Estimate
    good_requests: Estimate
    good_tokens: Estimate  # of output


@dataclass(frozen=True, slots=True)
class StepFigures:
    """What a step measured. ``latencies``: by figure and percentile, in milliseconds."""

    requests: int  # that were due in the window
    completed: int  # of these
    good: int  # of those, within the SLO
    failures: dict[str, int]
    unfinished: int
    input_tokens: float  # means of the completed, by the engine's count
    cached_input_tokens: float | None  # None: the engine does not tell
    output_tokens: float
    tokens_per_chunk: float
    send_delay_ms: float  # p99: sent later than intended, the client's own fault
    rates: Rates
    latencies: dict[str, dict[str, Estimate]] = field(default_factory=dict)


def measure(
    outcomes: Sequence[Outcome], window: Window, slo: Slo, *, unfinished: int, rng: random.Random
) -> StepFigures:
    """Return the figures of a window.

    ``outcomes``: everything that ended, of before and after, too. Percentiles are of requests that
    were due in the window, rates of output that came in it. ``unfinished``: due in it, and given up.
    """
    completed = [outcome for outcome in outcomes if outcome.failure is None]
    due = [
        outcome for outcome in outcomes if window.begins_at <= outcome.intended_at < window.ends_at
    ]
    due.sort(key=lambda outcome: outcome.intended_at)
    whole = [outcome for outcome in due if outcome.failure is None]
    failures = Counter(outcome.failure.value for outcome in due if outcome.failure is not None)
    chunks = sum(len(outcome.content_at) for outcome in whole)
    cached = [
        outcome.cached_input_tokens for outcome in whole if outcome.cached_input_tokens is not None
    ]
    delays = sorted(outcome.sent_at - outcome.intended_at for outcome in due)
    return StepFigures(
        requests=len(due) + unfinished,
        completed=len(whole),
        good=sum(slo.is_met_by(outcome) for outcome in whole),
        failures=dict(failures),
        unfinished=unfinished,
        input_tokens=_mean([outcome.input_tokens for outcome in whole]),
        cached_input_tokens=_mean(cached) if cached else None,
        output_tokens=_mean([outcome.output_tokens for outcome in whole]),
        tokens_per_chunk=sum(outcome.output_tokens for outcome in whole) / max(chunks, 1),
        send_delay_ms=quantile(delays, 0.99) * 1000 if delays else 0.0,
        rates=_measure_rates(completed, window, slo),
        latencies=_measure_latencies(whole, rng),
    )


def _mean(values: Sequence[int]) -> float:
    return statistics.fmean(values) if values else 0.0


def _measure_latencies(
    whole: Sequence[Outcome], rng: random.Random
) -> dict[str, dict[str, Estimate]]:
    tpots = [outcome.tpot_seconds for outcome in whole]
    gaps = [
        [gap for outcome in block for gap in outcome.itl_seconds()] for block in cut_blocks(whole)
    ]
    seconds = {
        "ttft_ms": estimate_percentiles([outcome.ttft_seconds for outcome in whole], rng),
        "itl_ms": estimate_of_blocks(gaps, rng),
        "tpot_ms": estimate_percentiles([tpot for tpot in tpots if tpot is not None], rng),
        "e2e_ms": estimate_percentiles([outcome.e2e_seconds for outcome in whole], rng),
    }
    return {
        figure: {name: _in_ms(estimate) for name, estimate in found.items()}
        for figure, found in seconds.items()
        if found
    }


def _in_ms(estimate: Estimate) -> Estimate:
    return Estimate(estimate.value * 1000, estimate.low * 1000, estimate.high * 1000)


def _measure_rates(completed: Sequence[Outcome], window: Window, slo: Slo) -> Rates:
    width = window.seconds / SLICES
    requests, inputs, outputs = [0.0] * SLICES, [0.0] * SLICES, [0.0] * SLICES
    good_requests, good_tokens = [0.0] * SLICES, [0.0] * SLICES
    for outcome in completed:
        chunks = outcome.content_at
        if chunks[-1] < window.begins_at or chunks[0] >= window.ends_at:
            continue
        is_good = slo.is_met_by(outcome)
        share = 1 / len(chunks)
        for at in chunks:
            if not window.begins_at <= at < window.ends_at:
                continue
            place = min(int((at - window.begins_at) / width), SLICES - 1)
            requests[place] += share
            inputs[place] += share * outcome.input_tokens
            outputs[place] += share * outcome.output_tokens
            if is_good:
                good_requests[place] += share
                good_tokens[place] += share * outcome.output_tokens
    return Rates(
        *(
            estimate_mean([count / width for count in slices])
            for slices in (requests, inputs, outputs, good_requests, good_tokens)
        )
    )
