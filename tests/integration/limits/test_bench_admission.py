"""The admission benchmark runs and reports what its README says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.admission.__main__ import main


def test_the_report_has_both_limiters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.json"
    monkeypatch.setattr(sys, "argv", ["admission", "--quick", "--out", str(out)])
    assert main() == 0, capsys.readouterr().err
    report = json.loads(out.read_text())
    local, shared = report["in_process"], report["redis"]
    assert 0 < local["limiter_lowest_us"] < local["whole_median_us"]
    assert shared["requests_per_second"] == 2_000
    assert 0 <= shared["wait_p50_ms"] <= shared["wait_p99_ms"]
    assert set(report["goals_met"]) == {"in_process", "redis"}
