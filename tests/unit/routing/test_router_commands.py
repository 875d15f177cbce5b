"""``forebay router`` on files of the documented format, with weights made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.routing import __main__ as bench
from gateway.cli.errors import CliError
from gateway.cli.router import app
from routing.complexity.predictor import SHIPPED, encode_weights, read_weights
from tests.unit.routing.test_complexity import make_header, make_table

runner = CliRunner()


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    """Return a file in which every second prompt needs the large model, and says so."""
    lines = []
    for number in range(40):
        is_hard = number % 2
        lines.append(
            {
                "prompt": f"{'proof' if is_hard else 'greet'} n{number}",
                "weak_score": 1 - is_hard,
                "strong_score": 1,
                "split": "test" if number < 30 else "train",
                "category": "a/b",
                "dataset": "toy/../x",
            }
        )
    path = tmp_path / "judged.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "own.bin"
    path.write_bytes(encode_weights(make_header(), make_table({"proof": -40}, {"proof": 8})))
    return path


def run(*words: str | Path) -> str:
    result = runner.invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_evaluate(judged: Path, weights: Path, tmp_path: Path) -> None:
    report, plots = tmp_path / "report.json", tmp_path / "plots"
    shown = run("evaluate", judged, "--weights", weights, "--report", report, "--plots", plots)
    entry = json.loads(report.read_text())["datasets"]["toy/../x"]
    assert entry["prompts"] == 30
    assert entry["routers"]["classifier"]["cpt50"] <= 30
    assert set(entry["routers"]) == {"classifier", "length", "category_lookup", "oracle", "random"}
    assert "category_lookup" in shown
    (plot,) = plots.iterdir()
    assert "<polyline" in plot.read_text()


def test_calibrate(judged: Path, weights: Path) -> None:
    found = json.loads(run("calibrate", judged, "--weights", weights, "--quality", "1"))
    assert found["large_share"] == 0.5
    assert found["prompts"] == 40
    with pytest.raises(CliError, match="one target"):
        run("calibrate", judged, "--weights", weights)


def test_explain_names_the_tier(weights: Path) -> None:
    found = json.loads(run("explain", "a proof", "--weights", weights, "--threshold", "0.5"))
    assert found["tier"] == "large"
    assert (
        json.loads(run("explain", "hello"))["weights"]["name"] == read_weights(SHIPPED).header.name
    )


def test_what_is_wrong_is_one_sentence(judged: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.bin"
    damaged.write_bytes(b"FBROUTE1")
    with pytest.raises(CliError, match="damaged"):
        run("evaluate", judged, "--weights", damaged)
    with pytest.raises(CliError, match="cannot be read"):
        run("evaluate", tmp_path / "none.csv")
    with pytest.raises(CliError, match="no rows"):
        run("calibrate", judged, "--dataset", "other", "--cost", "0.5")


def test_the_benchmark_skips_without_its_data(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", "--data", str(tmp_path / "none.parquet")])
    assert bench.main() == 0
    assert capsys.readouterr().out.startswith("skipped: the judged prompts are not here")


def test_the_shipped_weights_are_those_of_the_model_card() -> None:
    card = SHIPPED.with_suffix(".md").read_text(encoding="utf-8")
    assert read_weights(SHIPPED).digest in card
