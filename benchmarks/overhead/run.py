"""One whole benchmark: start everything, measure, end everything, put the report together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.overhead.compile_sources import compile_sources
from benchmarks.overhead.expectations import check_expectations
from benchmarks.overhead.load_client import LoadClient
from benchmarks.overhead.machine import (
    choose_cpus,
    describe_machine,
    find_tools,
    raise_file_limit,
)
from benchmarks.overhead.measure import Bench, Figures
from benchmarks.overhead.observe import CpuObserver
from benchmarks.overhead.plan import Plan
from benchmarks.overhead.report import Report
from benchmarks.overhead.start_engine import start_engine
from benchmarks.overhead.start_forebay import check_is_on, start_forebay
from benchmarks.overhead.start_nginx import start_nginx
from benchmarks.overhead.take_turns import Turns, take_turns
from benchmarks.overhead.target import Target, await_answer
from benchmarks.overhead.workload import write_workloads

TARGETS = ("direct", "nginx", "forebay", "forebay_limits")


def run_benchmark(
    plan: Plan, *, measurements: Sequence[str], targets: Sequence[str], directory: Path
) -> Report:
    """Measure in ``directory``, an empty one, and return the report.

    Raises BenchmarkError with one sentence when it cannot measure. Whatever it started has ended
    when it returns or raises.
    """
    tools, cpus = find_tools(), choose_cpus()
    raise_file_limit()
    started_at = datetime.now(UTC)
    machine = describe_machine(cpus, directory)
    with ExitStack() as stack:
        binaries = compile_sources(tools.gcc, directory)
        engine, engine_port = start_engine(stack, binaries.mock_engine, directory, cpus.load)
        bench = Bench(
            plan=plan,
            client=LoadClient(binaries.load, cpus.load),
            workloads=write_workloads(directory, plan),
            observer=CpuObserver(cpus, engine),
        )
        started = [
            _start(
                name,
                stack=stack,
                nginx=tools.nginx,
                directory=directory / name,
                engine_port=engine_port,
                cpu=cpus.target,
            )
            for name in TARGETS
            if name in targets
        ]
        for target in started:
            await_answer(target, bench.workloads.json.body)
            if target.journal:
                check_is_on(target, bench.workloads.json.body)
        everyone = take_turns(bench, started, measurements)
        figures = {turns.target.name: turns.summary() for turns in everyone}
    return _assemble(bench, everyone, figures, machine, started_at)


def _start(
    name: str, *, stack: ExitStack, nginx: str, directory: Path, engine_port: int, cpu: int
) -> Target:
    if name == "nginx":
        return start_nginx(stack, nginx, directory, engine_port, cpu)
    if name == "forebay":
        return start_forebay(stack, directory, engine_port, cpu)
    if name == "forebay_limits":
        return start_forebay(stack, directory, engine_port, cpu, has_limits=True)
    return Target(name="direct", port=engine_port)


def _assemble(
    bench: Bench,
    everyone: Sequence[Turns],
    figures: Mapping[str, Figures],
    machine: Mapping[str, object],
    started_at: datetime,
) -> Report:
    ratios = _ratios(figures)
    memories = [turns.memory for turns in everyone if turns.memory]
    return Report(
        is_quick=bench.plan.is_quick,
        rounds=bench.plan.rounds,
        started_at=started_at,
        finished_at=datetime.now(UTC),
        machine=machine,
        most_cpu_of_others=round(max(bench.disturbances, default=0.0), 3),
        most_cpu_stolen=round(max(bench.stolen, default=0.0), 3),
        targets=figures,
        ratios=ratios,
        expected=check_expectations(
            {**figures.get("forebay", {}), **ratios}, is_judged=not bench.plan.is_quick
        ),
        memory=memories[0] if memories else None,
        complaints=bench.client.complaints,
        rounds_by_target={turns.target.name: turns.rounds for turns in everyone},
    )


def _ratios(figures: Mapping[str, Figures]) -> dict[str, float]:
    """Return ratios of requests/s, and of chunks/s in bursts, where both sides were measured."""
    wanted = {
        "forebay_of_nginx": ("forebay", "nginx", "sat_rps"),
        "forebay_of_direct": ("forebay", "direct", "sat_rps"),
        "nginx_of_direct": ("nginx", "direct", "sat_rps"),
        "limits_of_forebay": ("forebay_limits", "forebay", "sat_rps"),
        "burst_forebay_of_nginx": ("forebay", "nginx", "burst_chunks_s"),
    }
    return {
        name: round(figures[one][figure] / figures[other][figure], 4)
        for name, (one, other, figure) in wanted.items()
        if figure in figures.get(one, {}) and figures.get(other, {}).get(figure)
    }
