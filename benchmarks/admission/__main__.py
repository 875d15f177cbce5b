"""Command line: ``python -m benchmarks.admission [--out file.json] [--quick]``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.admission import in_process, through_redis

GOAL_IN_PROCESS_US = 15.0
GOAL_REDIS_US = 30.0
_RATE = 2_000


def main() -> int:
    """Measure, print and write the figures; 1 if they could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.admission", description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")
    options = parser.parse_args()
    load_before = os.getloadavg()[0]  # how busy others kept the machine
    local = in_process.measure(rounds=5 if options.quick else 100)
    with tempfile.TemporaryDirectory(prefix="forebay-admission-") as path:
        try:
            shared = through_redis.measure(
                Path(path),
                rate=_RATE,
                seconds=0.5 if options.quick else 5.0,
                rounds=1 if options.quick else 5,
            )
        except through_redis.NotMeasuredError as error:
            print(f"not measured: {error}", file=sys.stderr)
            return 1
    goals = {
        "in_process": local.whole_median_us <= GOAL_IN_PROCESS_US,
        "redis": shared.difference_median_us <= GOAL_REDIS_US,
    }
    for label, figure in (
        ("in-process, everything, median round", local.whole_median_us),
        ("  its quickest round", local.whole_lowest_us),
        ("  the limiter alone, median round", local.limiter_median_us),
        ("  its quickest round", local.limiter_lowest_us),
        (f"through Redis at {_RATE:,}/s, median round", shared.difference_median_us),
        ("  its quickest round", shared.difference_lowest_us),
    ):
        print(f"{label:<44}{figure:>10.1f} us")
    print(f"{'  waiting, p50 and p99':<44}{shared.wait_p50_ms:>10.2f} {shared.wait_p99_ms:.2f} ms")
    if options.out is not None:
        machine = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load_before": round(load_before, 2),
        }
        figures = {"in_process": asdict(local), "redis": asdict(shared)}
        report = {"machine": machine, **figures, "goals_met": goals}
        options.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    for name, is_met in goals.items():
        if not is_met and not options.quick:
            print(f"missed goal: {name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
