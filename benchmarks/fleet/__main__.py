"""Command line: ``python -m benchmarks.fleet [--out file.json] [--quick]``."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.fleet.measure import QUICK, Comparison, Plan, compare, find_capacity
from benchmarks.fleet.workload import WORKLOADS
from gateway.snapshot.model import PickPolicy

MANY_WORKERS = 4


def main() -> int:
    """Run, print and write the figures; the same on every machine but for rounding."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="seconds, to see that it runs")
    options = parser.parse_args()
    plan = QUICK if options.quick else Plan()
    found: dict[str, Comparison] = {}
    for name, workload in WORKLOADS.items():
        capacity = find_capacity(workload, plan)
        for workers in (1, MANY_WORKERS):
            label = name if workers == 1 else f"{name}_{workers}_workers"
            found[label] = compare(workload, plan, workers=workers, capacity=capacity)
            print(_table(label, found[label]), flush=True)
    goals = find_goals(found)
    for goal, is_met in goals.items():
        print(f"{'met' if is_met else 'MISSED':<7} {goal}")
    if options.out is not None:
        report = {
            "plan": _plain(plan),
            "weights": msgspec.to_builtins(msgspec.structs.asdict(PickPolicy())),
            "workloads": {name: asdict(comparison) for name, comparison in found.items()},
            "goals_met": goals,
        }
        options.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


def find_goals(found: dict[str, Comparison]) -> dict[str, bool]:
    """Tell which goals were met."""
    shared = found["shared_prefixes"].figures
    mixed = found["mixed_lengths"].figures
    return {
        "half_of_round_robins_p99_ttft_with_shared_prefixes": 2 * shared["ours"].p99_ttft
        <= shared["round_robin"].p99_ttft,
        "below_least_requests_p99_ttft_with_mixed_lengths": mixed["ours"].p99_ttft
        < mixed["least_requests"].p99_ttft,
    }


def _plain(plan: Plan) -> dict[str, Any]:
    return {
        "replicas": plan.replicas,
        "requests": plan.requests,
        "seeds": plan.seeds,
        "load": plan.load,
        "pace": msgspec.to_builtins(plan.pace),
    }


def _table(name: str, comparison: Comparison) -> str:
    lines = [f"{name}: {comparison.offered_per_second:.1f} requests/s"]
    lines += [
        f"  {policy:<15} TTFT p50 {figures.p50_ttft:6.3f} s p99 {figures.p99_ttft:7.3f} s"
        f"  E2E p50 {figures.p50_e2e:6.2f} s p99 {figures.p99_e2e:7.2f} s"
        f"  prefix hits {figures.hit_share:4.0%}  good {figures.goodput_per_second:5.1f}/s"
        for policy, figures in comparison.figures.items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
