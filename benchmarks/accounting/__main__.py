"""Command line: ``python -m benchmarks.accounting [--out file.json] [--quick]``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.accounting.run import Outcome, Plan, run_benchmark

GOAL_EVENTS_PER_SECOND = 10_000
GOAL_LAG_P99_MS = 2_000.0

_FULL = Plan(warm_up_seconds=5, sustained_seconds=30, lag_seconds=20, lag_events_per_second=2_000)
_QUICK = Plan(warm_up_seconds=1, sustained_seconds=2, lag_seconds=2, lag_events_per_second=500)


def main() -> int:
    """Measure, print and write the figures; 1 if the books are not clean afterwards."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accounting", description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")
    parser.add_argument("--work-dir", type=Path, metavar="DIR", help="where journal and data lie")
    options = parser.parse_args()
    plan = _QUICK if options.quick else _FULL
    load_before = os.getloadavg()[0]  # how busy others kept the machine
    with tempfile.TemporaryDirectory(prefix="forebay-accounting-", dir=options.work_dir) as path:
        outcome = run_benchmark(plan, Path(path))
    goals = {
        "events_per_second": outcome.sustained.events_per_second >= GOAL_EVENTS_PER_SECOND,
        "settlement_lag_p99": outcome.lag.p99_ms < GOAL_LAG_P99_MS,
        "verify_clean": outcome.is_clean,
    }
    print(_table(outcome))
    if options.out is not None:
        machine = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load_before": round(load_before, 2),
        }
        report = {"machine": machine, **asdict(outcome), "goals_met": goals}
        options.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    for name, is_met in goals.items():
        if not is_met and not options.quick:
            print(f"missed goal: {name}", file=sys.stderr)
    return 0 if outcome.is_clean else 1


def _table(outcome: Outcome) -> str:
    rate, lag = outcome.sustained, outcome.lag
    lines = [
        ("sustained, journal to commit", f"{rate.events_per_second:,.0f} events/s"),
        ("  its slowest 5 seconds", f"{rate.slowest_5_seconds_per_second:,.0f} events/s"),
        ("  events, seconds", f"{rate.events:,} in {rate.seconds:.1f} s"),
        ("  worker", f"{rate.worker_cores:.2f} cores"),
        (f"settlement lag at {lag.offered_per_second:,}/s, p50", f"{lag.p50_ms:.0f} ms"),
        ("  p95", f"{lag.p95_ms:.0f} ms"),
        ("  p99", f"{lag.p99_ms:.0f} ms"),
        ("  longest", f"{lag.max_ms:.0f} ms"),
        ("  worker", f"{lag.worker_cores:.2f} cores"),
        (
            "billing verify",
            f"{'clean' if outcome.is_clean else 'NOT CLEAN'} in {outcome.verify_seconds:.1f} s",
        ),
    ]
    table = "\n".join(f"{label:<42}{figure:>22}" for label, figure in lines)
    return table if outcome.is_clean else "\n".join((table, *outcome.verify_lines))


if __name__ == "__main__":
    sys.exit(main())
