"""The fleet benchmark works, and its figures do not depend on the machine."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.fleet.measure import QUICK, compare, find_capacity
from benchmarks.fleet.policies import Ours
from benchmarks.fleet.simulate import Fleet
from benchmarks.fleet.workload import WORKLOADS, shared_prefixes
from tests.fixtures.processes import REPOSITORY


def test_ours_waits_half_as_long_as_round_robin_with_shared_prefixes() -> None:
    plan = replace(QUICK, requests=800)
    capacity = find_capacity(shared_prefixes, plan)
    figures = compare(shared_prefixes, plan, capacity=capacity).figures
    assert 2 * figures["ours"].p99_ttft <= figures["round_robin"].p99_ttft, figures
    assert figures["ours"].hit_share > figures["least_requests"].hit_share


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_request_is_served_and_the_same_seed_gives_the_same(name: str) -> None:
    requests = WORKLOADS[name](random.Random(5), 120, 30.0)
    assert [r.arrives_at for r in requests] == sorted(r.arrives_at for r in requests)
    runs = [Fleet(Ours, [QUICK.pace] * 3, workers=2, seed=1).run(requests) for _ in range(2)]
    assert runs[0].timings == runs[1].timings
    assert len(runs[0].finished_at) == len(requests)
    assert all(0.0 < timing.ttft <= timing.e2e for timing in runs[0].timings)


@pytest.mark.e2e
def test_the_command_writes_its_figures(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.fleet", "--quick", "--out", str(out)]
    run = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=240, check=False
    )
    assert run.returncode == 0, run.stderr
    report = json.loads(out.read_text())
    assert len(report["workloads"]) == 4 * len(WORKLOADS)
    assert all(len(found["figures"]) == 3 for found in report["workloads"].values())
    assert len(report["goals_met"]) == 2


@pytest.mark.e2e
def test_the_comparison_over_sockets_writes_its_figures(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.fleet", "--gateway", "--quick", "--out", str(out)]
    run = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=240, check=False
    )
    assert run.returncode == 0, run.stderr
    figures = json.loads(out.read_text())["figures"]
    assert len(figures) == 4
    assert all(found["failed"] == 0 for found in figures.values())
    assert all(0 < found["p50_ttft"] <= found["p50_e2e"] for found in figures.values())
    assert figures["gateway"]["cpu_shares"]["gateway"] > 0
