"""The accounting benchmark runs, reports and ends with clean books."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.e2e
def test_the_benchmark_reports_figures_and_a_clean_proof(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.accounting", "--quick", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert result.returncode == 0, result.stderr
    assert "billing verify" in result.stdout
    report = json.loads(out.read_text())
    assert report["goals_met"]["verify_clean"] is True
    assert report["sustained"]["events"] > 1000
    assert report["lag"]["events"] > 100
    assert 0 < report["lag"]["p50_ms"] <= report["lag"]["p99_ms"]
