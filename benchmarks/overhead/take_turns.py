"""Measure the targets turn by turn, so that a drift of the machine hits all of them alike."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

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


@dataclass
class Turns:
    """What one target has shown so far."""

    target: Target
    rss_idle_mb: float | None = None
    rounds: list[Figures] = field(default_factory=list)
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

    def medians(self) -> Figures:
        """Return each figure's median over the rounds."""
        names = {name: None for figures in self.rounds for name in figures}
        return {
            name: round(median(figures[name] for figures in self.rounds if name in figures), 4)
            for name in names
        }

    def summary(self) -> Figures:
        """Return the medians, the counts, memory, and what the journal says of the load."""
        figures = self.medians()
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
    for turns in everyone:
        if measurement in turns.target.measurements:
            _say(f"round {number} of {bench.plan.rounds}: {measurement}, {turns.target.name}")
            _measure(bench, turns, measurement)
    if measurement == "rate":
        _measure_alike(bench, everyone)


def _measure(bench: Bench, turns: Turns, measurement: str) -> None:
    target = turns.target
    if measurement == "rate":
        if "sat_rps" not in turns.rounds[-1]:  # --only rate: its own saturation comes first
            turns.add(measure_saturation(bench, target))
        turns.add(measure_rate(bench, target, turns.rounds[-1]["sat_rps"]))
    else:
        measure = {
            "sat": measure_saturation,
            "one": measure_one_connection,
            "burst": measure_burst,
            "paced": measure_paced,
            "held": measure_held,
        }[measurement]
        turns.add(measure(bench, target))
    if target.journal:
        target.journal.read()  # also removes finished segments: bounds the disk used


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
