"""Command line: ``python -m benchmarks.fleet [--gateway] [--out file.json] [--quick]``."""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.fleet.measure import PACES, QUICK, Comparison, Plan, compare, find_capacity
from benchmarks.fleet.wire import WirePlan, measure
from benchmarks.fleet.workload import WORKLOADS
from gateway.snapshot.model import PickPolicy

MANY_WORKERS = 4


def main() -> int:
    """Run, print and write the figures; the same on every machine but for rounding."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="seconds, to see that it runs")
    text = "over real sockets, through the real gateway (minutes, on a quiet machine)"
    parser.add_argument("--gateway", action="store_true", help=text)
    options = parser.parse_args()
    if options.gateway:
        quick = WirePlan(requests=12, per_second=25.0, slowness=0.5, max_output_tokens=8)
        report = measure(quick if options.quick else WirePlan())
        if options.out is not None:
            _write(options.out, report)
        return 0
    plan = QUICK if options.quick else Plan()
    found: dict[str, Comparison] = {}
    with ProcessPoolExecutor() as pool:
        tasks = [(gpu, name) for gpu in PACES for name in WORKLOADS]
        for label, comparison in chain.from_iterable(pool.map(partial(_measure, plan), tasks)):
            found[label] = comparison
            print(_table(label, comparison), flush=True)
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
        _write(options.out, report)
    return 0


def _write(path: Path, report: dict[str, Any]) -> None:
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _measure(plan: Plan, task: tuple[str, str]) -> list[tuple[str, Comparison]]:
    """Compare on one GPU and workload, with one worker and with several."""
    gpu, name = task
    plan = replace(plan, pace=PACES[gpu])
    capacity = find_capacity(WORKLOADS[name], plan)
    return [
        (label, compare(WORKLOADS[name], plan, workers=workers, capacity=capacity))
        for workers, label in (
            (1, f"{name}_on_{gpu}"),
            (MANY_WORKERS, f"{name}_on_{gpu}_{MANY_WORKERS}_workers"),
        )
    ]


def find_goals(found: dict[str, Comparison]) -> dict[str, bool]:
    """Tell which goals were met."""
    shared = found["shared_prefixes_on_24_gb"].figures
    mixed = found["mixed_lengths_on_24_gb"].figures
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
        "paces": msgspec.to_builtins(PACES),
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
