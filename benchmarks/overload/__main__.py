"""Command line: ``python -m benchmarks.overload [--out file.json] [--quick] [--url URL ...]``."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from benchmarks.overload.measure import (
    Level,
    Share,
    find_capacity,
    measure_classes,
    measure_level,
    measure_organizations,
)
from benchmarks.overload.plan import FULL, QUICK, SLO_FIRST_SECONDS, SLO_SECONDS, Plan, Target
from benchmarks.overload.start_parts import running_dispatcher, running_engine


@dataclass(frozen=True, slots=True)
class Outcome:
    """All figures of one target."""

    capacity_per_second: float
    levels: list[Level]
    bare_levels: list[Level]
    organizations: Share
    classes: Share


def main() -> int:
    """Measure, print and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overload", description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="a minute, to see that it runs")
    parser.add_argument("--url", help="of a gateway to measure instead, without /v1")
    parser.add_argument("--secrets", default="first,second", help="of two organizations there")
    parser.add_argument("--models", default="chat,bulk", help="interactive and batch there")
    options = parser.parse_args()
    load_before = os.getloadavg()[0]  # how busy others kept the machine
    plan = QUICK if options.quick else FULL
    with _targets(options) as (target, bare):
        outcome = uvloop.run(_measure(plan, target, bare))
    goals = find_goals(outcome)
    print(_table(outcome, goals))
    if options.out is not None:
        machine = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load_before": round(load_before, 2),
        }
        slo = {"whole_seconds": SLO_SECONDS, "first_content_seconds": SLO_FIRST_SECONDS}
        report = {
            "machine": machine,
            "target": target.name,
            "slo": slo,
            **asdict(outcome),
            "goals_met": goals,
        }
        options.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    for name, is_met in goals.items():
        if not is_met:
            print(f"missed goal: {name}", file=sys.stderr)
    return 0


@contextmanager
def _targets(options: argparse.Namespace) -> Iterator[tuple[Target, Target | None]]:
    """Yield what is measured, and the engine without a queue where it is ours."""
    if options.url is not None:
        first, second = options.secrets.split(",")
        chat, bulk = options.models.split(",")
        yield Target(options.url, options.url.rstrip("/"), (first, second), (chat, bulk)), None
        return
    with running_engine() as engine_url, running_dispatcher(engine_url) as url:
        yield (
            Target("fair queue", url),
            Target("engine alone", engine_url, models=("simulated", "simulated")),
        )


async def _measure(plan: Plan, target: Target, bare: Target | None) -> Outcome:
    capacity = await find_capacity(target, plan)
    levels = [await measure_level(target, plan, times, capacity) for times in plan.levels]
    organizations = await measure_organizations(target, plan, capacity)
    classes = await measure_classes(target, plan, capacity)
    bare_levels = []
    if bare is not None:
        for times in plan.bare_levels:
            bare_levels.append(await measure_level(bare, plan, times, capacity))
            await asyncio.sleep(1.0)
    return Outcome(capacity, levels, bare_levels, organizations, classes)


def find_goals(outcome: Outcome) -> dict[str, bool]:
    """Tell which goals were met."""
    last = outcome.levels[-1]
    served = outcome.organizations.served_tokens_per_second
    batch = outcome.classes.served_tokens_per_second["batch"]
    peak = max(level.goodput_per_second for level in outcome.levels)
    peak_tokens = max(level.goodput_tokens_per_second for level in outcome.levels)
    first = last.p99_first_seconds
    return {
        "first_content_in_time_at_10x": first is not None and first <= SLO_FIRST_SECONDS,
        "goodput_at_10x_within_a_tenth_of_peak": last.goodput_per_second >= 0.9 * peak,
        "tokens_at_10x_within_a_tenth_of_peak": last.goodput_tokens_per_second >= 0.9 * peak_tokens,
        "equal_service_to_equal_weights": min(served.values()) >= 0.9 * max(served.values()),
        "batch_has_its_tenth": batch
        >= 0.08 * sum(outcome.classes.served_tokens_per_second.values()),
        "every_refusal_has_retry_after": not any(
            level.counts["refused_without_retry_after"] for level in outcome.levels
        ),
    }


def _table(outcome: Outcome, goals: dict[str, bool]) -> str:
    lines = [f"capacity {outcome.capacity_per_second:.1f} requests/s"]
    for title, levels in (("with queue", outcome.levels), ("engine alone", outcome.bare_levels)):
        lines += [
            f"{title:<13} {level.times_capacity:>5.1f}x offered {level.offered_per_second:>6.1f}/s"
            f"  good {level.goodput_per_second:>6.2f}/s {level.goodput_tokens_per_second:>7.1f} tok/s"
            f"  attempts {level.attempts_per_second:>7.1f}/s"
            f"  p50 {level.p50_seconds or 0:.2f} s p99 {level.p99_seconds or 0:.2f} s"
            f"  first p50 {level.p50_first_seconds or 0:.2f} s p99 {level.p99_first_seconds or 0:.2f} s"
            for level in levels
        ]
    for share in (outcome.organizations, outcome.classes):
        served = ", ".join(
            f"{name} {rate:.0f} tok/s (asked for {share.offered_per_second[name]:.0f} requests/s)"
            for name, rate in share.served_tokens_per_second.items()
        )
        lines.append(f"served: {served}")
    lines += [f"{'met' if is_met else 'MISSED':<7} {name}" for name, is_met in goals.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
