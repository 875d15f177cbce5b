"""What a run ends with: a table for people, plain data for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from benchmarks.overhead.expectations import Verdict
from benchmarks.overhead.measure import Figures
from benchmarks.overhead.memory import MemoryGrowth

_ROWS = (
    ("requests/s, 64 connections", "sat_rps", 0),
    ("  p50 ms", "sat_p50_ms", 2),
    ("  p99 ms", "sat_p99_ms", 2),
    ("one connection, p50 ms", "one_p50_ms", 3),
    ("  p99 ms", "one_p99_ms", 3),
    ("at 30 % of own saturation, p50 ms", "rate_p50_ms", 3),
    ("  p99 ms", "rate_p99_ms", 3),
    ("at 30 % of the slowest's, p50 ms", "rate_alike_p50_ms", 3),
    ("  p99 ms", "rate_alike_p99_ms", 3),
    ("burst, chunks/s", "burst_chunks_s", 0),
    ("  usage on every chunk", "burst_continuous_chunks_s", 0),
    ("paced streams, delay p50 ms", "paced_delay_p50_ms", 2),
    ("  delay p99 ms", "paced_delay_p99_ms", 2),
    ("  share of a core, whole run", "paced_cpu", 2),
    ("  share of a core, all streams running", "paced_plateau_cpu", 2),
    ("  usage on every chunk: delay p99 ms", "paced_continuous_delay_p99_ms", 2),
    ("  usage on every chunk: share of a core", "paced_continuous_cpu", 2),
    ("streams held (p99 delay <= 20 ms)", "held_streams", 0),
    ("  usage on every chunk", "held_continuous_streams", 0),
    ("RSS of all processes, MB idle", "rss_idle_mb", 0),
    ("  after", "rss_after_mb", 0),
    ("RSS of the worker, peak MB", "rss_worker_peak_mb", 0),
    ("RSS growth, MB per million requests", "rss_growth_mb_per_million", 2),
    ("requests answered", "answered", 0),
    ("requests bad", "bad", 0),
)
_LABEL_WIDTH = 42
_COLUMN_WIDTH = 16
_NOTICEABLE_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything measured."""

    is_quick: bool
    rounds: int
    started_at: datetime
    finished_at: datetime
    machine: Mapping[str, object]
    most_cpu_of_others: float  # largest share of a CPU that none of our processes used
    most_cpu_stolen: float  # largest share of a CPU that the host gave to others
    targets: Mapping[str, Figures]  # averages over the rounds
    ratios: Mapping[str, float]
    expected: Sequence[Verdict]
    memory: MemoryGrowth | None
    rounds_by_target: Mapping[str, Sequence[Figures]]
    complaints: Sequence[str]  # of the load client; those of a `held` step are that step's end

    def as_plain(self) -> dict[str, object]:
        """Return the report as it is written: each target's figures under the target's name."""
        return {
            "benchmark": "overhead",
            "is_quick": self.is_quick,
            "rounds": self.rounds,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "machine": {
                **self.machine,
                "most_cpu_of_others": self.most_cpu_of_others,
                "most_cpu_stolen": self.most_cpu_stolen,
            },
            **self.targets,
            "ratios": self.ratios,
            "expected": self.expected,
            "memory": self.memory,
            "rounds_by_target": self.rounds_by_target,
            "complaints": self.complaints,
        }


def format_table(targets: Mapping[str, Mapping[str, float]]) -> str:
    """Return one row a figure, one column a target; figures that nobody has are left out."""
    lines = [" " * _LABEL_WIDTH + "".join(f"{name:>{_COLUMN_WIDTH}}" for name in targets)]
    for label, figure, digits in _ROWS:
        values = [figures.get(figure) for figures in targets.values()]
        if all(value is None for value in values):
            continue
        cells = ("-" if value is None else f"{value:,.{digits}f}" for value in values)
        lines.append(
            f"{label:<{_LABEL_WIDTH}}" + "".join(f"{cell:>{_COLUMN_WIDTH}}" for cell in cells)
        )
    return "\n".join(lines)


def format_verdicts(verdicts: Sequence[Verdict]) -> str:
    """Return one line an expectation that was measured."""
    words = {True: "ok", False: "MISSED", None: "not judged"}
    lines = [f"{'Expected of Forebay':<52}{'wanted':>10}{'got':>12}"]
    lines += [
        f"{verdict.name:<52}{verdict.wanted:>10}{verdict.got:>12g}  {words[verdict.ok]}"
        for verdict in verdicts
        if verdict.got is not None
    ]
    return "\n".join(lines)


def format_report(report: Report) -> str:
    """Return everything that a person reads at the end of a run."""
    parts = [format_table(report.targets)]
    if report.ratios:
        parts.append("\n".join(f"{name:<28}{ratio:>8.3f}" for name, ratio in report.ratios.items()))
    if "forebay" in report.targets:
        parts.append(format_verdicts(report.expected))
    parts += [f"Bad requests: {complaint}" for complaint in report.complaints]
    if report.most_cpu_of_others > _NOTICEABLE_SHARE and not report.is_quick:
        parts.append(
            f"Other processes used up to {report.most_cpu_of_others:.0%} of one of the two CPUs "
            "meanwhile: the figures are too low; measure again on a quiet machine."
        )
    return "\n\n".join(parts)
