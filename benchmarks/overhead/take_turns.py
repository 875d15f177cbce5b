"""Measure the targets turn by turn, so that a drift of the machine hits all of them alike."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import mean, median

from benchmarks.overhead.measure import (
    Bench,
    Figures,
    measure_burst,
    measure_held,
    measure_one_connection,
    measure_paced,
    measure_rate,
    measure_saturation,
    warm_up,
)
from benchmarks.overhead.memory import MemoryGrowth, measure_growth
from benchmarks.overhead.plan import MEASUREMENTS
from benchmarks.overhead.target import Target

_REQUEST_COUNTS = ("answered", "bad")
# What is measured by what a core can do at the most. On a host that others use too, that is one of two
# speeds for some seconds, and not alike for all programs. So the targets alternate in slices, and
# their means are taken: each had the same part of both, where a median would be of one or the other.
_SLICED = ("sat", "burst")


@dataclass
class Turns:
    """What one target has shown so far."""

    target: Target
    rss_idle_mb: float | None = None
    rounds: list[Figures] = field(default_factory=list)
    slices: list[Figures] = field(default_factory=list)  # of the measurement that goes on
    answered: float = 0
    bad: float = 0
    memory: MemoryGrowth | None = None

    def count(self, figures: Figures) -> None:
        """Add the requests of a measurement."""
        self.answered += figures["answered"]
        self.bad += figures["bad"]

    def add(self, figures: Figures) -> None:
        """Take a measurement into the current round."""
        self.count(figures)
        self.rounds[-1].update(
            {
                name: round(value, 4)
                for name, value in figures.items()
                if name not in _REQUEST_COUNTS
            }
        )

    def join_slices(self) -> None:
        """Take the means of the slices into the current round."""
        for figures in self.slices:
            self.count(figures)
        joined = _join(self.slices, mean)
        self.slices.clear()
        self.rounds[-1].update(
            {name: value for name, value in joined.items() if name not in _REQUEST_COUNTS}
        )

    def summary(self) -> Figures:
        """Return the rounds' medians or means, the counts, memory, and what the journal says of the load."""
        figures = _join(self.rounds, median)
        means = _join(self.rounds, mean)
        figures.update({name: means[name] for name in means if name.startswith(_SLICED)})
        figures["answered"], figures["bad"] = self.answered, self.bad
        if self.rss_idle_mb is not None and self.target.process:
            figures["rss_idle_mb"] = round(self.rss_idle_mb, 1)
            figures["rss_after_mb"] = round(self.target.process.rss_mb()[1], 1)
            figures["rss_worker_peak_mb"] = round(self.target.process.peak_rss_mb(), 1)
        if self.memory:
            figures["rss_growth_mb_per_million"] = self.memory.rss_growth_mb_per_million
        if self.target.journal:
            totals = self.target.journal.settle()
            figures["unmetered"] = max(0.0, self.answered - totals.completed_with_usage)
            figures["journal_open"] = totals.opened - totals.closed
            figures["journal_bytes_per_request"] = round(
                totals.bytes_written / max(totals.opened, 1)
            )
        return figures


def _join(taken: Sequence[Figures], average: Callable[[Iterable[float]], float]) -> Figures:
    """Return the average of each figure."""
    names = {name: None for figures in taken for name in figures}
    return {
        name: round(average([figures[name] for figures in taken if name in figures]), 4)
        for name in names
    }


def take_turns(bench: Bench, targets: Sequence[Target], wanted: Sequence[str]) -> list[Turns]:
    """Warm up every target, then measure round by round; memory growth comes last."""
    everyone = [Turns(target) for target in targets]
    for turns in everyone:
        if turns.target.process:
            turns.rss_idle_mb = turns.target.process.rss_mb()[1]
        if turns.target.journal:
            turns.target.journal.restart()
        turns.count(warm_up(bench, turns.target))
    for number in range(1, bench.plan.rounds + 1):
        for turns in everyone:
            turns.rounds.append({})
        for measurement in MEASUREMENTS:
            if measurement in wanted and measurement != "memory":
                _take_turn(bench, everyone, measurement, number)
    for turns in everyone:
        is_wanted = "memory" in wanted and "memory" in turns.target.measurements
        if is_wanted and turns.target.journal:
            _say(f"memory over {bench.plan.memory_requests:,} requests, {turns.target.name}")
            turns.memory = measure_growth(bench, turns.target)
            turns.count({"answered": turns.memory.answered, "bad": turns.memory.bad})
    return everyone


def _take_turn(bench: Bench, everyone: Sequence[Turns], measurement: str, number: int) -> None:
    """Measure one kind on every target that has it."""
    measured = [turns for turns in everyone if measurement in turns.target.measurements]
    names = ", ".join(turns.target.name for turns in measured)
    _say(f"round {number} of {bench.plan.rounds}: {measurement} of {names}")
    if measurement in _SLICED:
        for slice_number in range(bench.plan.slices):
            for turns in measured[::-1] if slice_number % 2 else measured:
                turns.slices.append(_measure(bench, turns, measurement))
        for turns in measured:
            turns.join_slices()
    else:
        for turns in measured:
            turns.add(_measure(bench, turns, measurement))
    if measurement == "rate":
        _measure_alike(bench, everyone)


def _measure(bench: Bench, turns: Turns, measurement: str) -> Figures:
    target = turns.target
    if measurement == "rate":
        if "sat_rps" not in turns.rounds[-1]:  # --only rate: its own saturation comes first
            turns.add(measure_saturation(bench, target))
        figures = measure_rate(bench, target, turns.rounds[-1]["sat_rps"])
    else:
        measure = {
            "sat": measure_saturation,
            "one": measure_one_connection,
            "burst": measure_burst,
            "paced": measure_paced,
            "held": measure_held,
        }[measurement]
        figures = measure(bench, target)
    if target.journal:
        target.journal.read()  # also removes finished segments: bounds the disk used
    return figures


def _measure_alike(bench: Bench, everyone: Sequence[Turns]) -> None:
    """Drive every target at the slowest one's rate: what the machine itself makes of a p99 there.

    An idle virtual CPU wakes late; a fast target at 30 % of its own saturation never lets it idle.
    """
    measured = [turns for turns in everyone if "sat_rps" in turns.rounds[-1]]
    if len(measured) < 2:
        return
    slowest = min(turns.rounds[-1]["sat_rps"] for turns in measured)
    for turns in measured:
        turns.add(measure_rate(bench, turns.target, slowest, "rate_alike"))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
