"""Datasets of few prompts are judged as one: each alone would be noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli.router import app
from routing.learned.evaluate import FEWEST_ALONE, evaluate, look_up_categories
from routing.learned.judged_prompts import JudgedPrompt
from tests.unit.routing.test_learned import make_predictor

_SMALL = 24
_runner = CliRunner()


def _line(dataset: str, number: int, **more: Any) -> dict[str, Any]:
    is_hard = number % 2
    text = f"{'proof' if is_hard else 'greet'} {dataset} {number}"
    scores = {"weak_score": 1 - is_hard, "strong_score": 1}
    return {"prompt": text, "dataset": dataset, "split": "test", **scores, **more}


def _write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def _evaluate(*words: str | Path) -> str:
    result = _runner.invoke(app, ["evaluate", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_many_small_datasets_are_shown_as_one(tmp_path: Path) -> None:
    names = [f"task-{number:02}" for number in range(_SMALL)]
    lines = [_line(name, number) for name in names for number in range(5)]
    lines += [_line("large", number) for number in range(FEWEST_ALONE)]
    file = _write(tmp_path / "tasks.jsonl", lines)
    report, plots = tmp_path / "report.json", tmp_path / "plots"
    shown = _evaluate(file, "--report", report, "--plots", plots)
    first = [line.split("  ")[0] for line in shown.splitlines() if "  " in line]
    assert {*first} == {"DATASET", "large", f"{_SMALL} small datasets"}
    assert f"{_SMALL} small datasets: too few prompts each" in shown
    assert {path.name for path in plots.iterdir()} == {"large.svg", f"{_SMALL}_small_datasets.svg"}
    told = json.loads(report.read_text())
    assert [*told["datasets"]] == ["large", *names]  # a program finds each
    (together,) = told["together"].values()
    assert (together["prompts"], together["datasets"]) == (_SMALL * 5, names)
    assert together["routers"]["oracle"]["apgr"] > together["routers"]["random"]["apgr"]
    only = _evaluate(file, "--dataset", names[3])  # who asks for one gets it
    assert names[3] in only
    assert "small datasets" not in only


@pytest.mark.parametrize("count", [FEWEST_ALONE - 1, FEWEST_ALONE])
def test_one_alone_and_large_ones_stay_as_they_are(count: int) -> None:
    rows = [
        JudgedPrompt(str(number), name, "", f"{name} {number}", 0.0, 1.0, "test", "1")
        for name, many in (("a", 5), ("b", count))
        for number in range(many)
    ]
    together = evaluate(make_predictor(), rows, times=1)["together"]
    assert [*together] == (["2 small datasets"] if count < FEWEST_ALONE else [])


def test_pairs_of_models_stay_apart() -> None:
    rows = [
        JudgedPrompt(str(number), name, "", f"{name} {number}", 0.0, 1.0, "test", "1", pair)
        for pair in ("s / l", "s / xl")
        for name in ("a", "b", "c")
        for number in range(3)
    ]
    report = evaluate(make_predictor(), rows, times=1)
    assert [*report["together"]] == ["3 small datasets (s / l)", "3 small datasets (s / xl)"]
    assert report["together"]["3 small datasets (s / l)"]["datasets"] == [
        "a (s / l)",
        "b (s / l)",
        "c (s / l)",
    ]


def test_categories_of_one_name_are_another_in_each_dataset_and_marks_are_scaled() -> None:
    def row(dataset: str, weak: float, strong: float) -> JudgedPrompt:
        return JudgedPrompt("1", dataset, "easy", "x", weak, strong, "train", "1")

    trained = [row("labels", 0.0, 1.0), row("marks", 4.0, 9.0), row("marks", 5.0, 8.0)]
    judged = [row("labels", 0.0, 0.0), row("marks", 0.0, 0.0), row("new", 0.0, 0.0)]
    assert look_up_categories(trained, judged).tolist() == pytest.approx([1.0, 0.4, 0.6])
