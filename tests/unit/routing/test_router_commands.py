"""``forebay router`` on files of the documented format, with weights made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.routing import __main__ as bench
from benchmarks.routing.smooth_labels import smooth
from gateway.cli.errors import CliError
from gateway.cli.router import app
from gateway.cli.routes import app as routes
from routing.complexity.predictor import SHIPPED, encode_weights, list_shipped, read_weights
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
    # The second table: each model alone, the best of both, which weights, whether they are a constant.
    (line,) = (line for line in shown.splitlines() if line.split()[:2] == ["toy/../x", "30"])
    assert line.split()[2:7] == ["0.500", "1.000", "1.000", "test", "100.0%"]
    assert "is a constant" not in shown
    (plot,) = plots.iterdir()
    assert "<polyline" in plot.read_text()


def test_without_weights_those_of_the_rows_own_pair_score(tmp_path: Path) -> None:
    pairs = [
        part.pair for path in list_shipped().values() for part in read_weights(path).header.parts
    ]
    lines = [
        {
            "prompt": f"{pair} {number}",
            "weak_score": number % 2,
            "strong_score": 1,
            "split": "test",
            "dataset": f"of {pair}",
            **dict(zip(("weak_model", "strong_model"), pair.split(" / "), strict=pair != "")),
        }
        for pair in (*pairs, "a / b", "")
        for number in range(8)
    ]
    path, report = tmp_path / "pairs.jsonl", tmp_path / "report.json"
    path.write_text("\n".join(map(json.dumps, lines)))
    result = runner.invoke(app, ["evaluate", str(path), "--report", str(report)])
    assert result.exit_code == 0, result.output
    used = {
        dataset: entry["weights"]["name"]
        for dataset, entry in json.loads(report.read_text())["datasets"].items()
    }
    assert used == {
        **{f"of {pairs[place]}": name for place, name in enumerate(list_shipped())},
        "of a / b": SHIPPED.stem,
        "of ": SHIPPED.stem,
    }
    warnings = [line for line in result.stderr.splitlines() if line.startswith("warning")]
    assert len(warnings) == 2
    assert f"rows of a / b are scored with {SHIPPED.stem}, which was made for" in warnings[1]
    assert "rows that name no pair of models are scored with" in warnings[0]
    with pytest.raises(CliError, match="several pairs"):
        run("calibrate", path, "--quality", "0.9")
    told = json.loads(run("calibrate", path, "--quality", "0.9", "--pair", pairs[1]))
    assert told["weights"] == list(list_shipped())[1]


def test_weights_that_learned_nothing_are_called_the_length_rule(
    judged: Path, tmp_path: Path
) -> None:
    path = tmp_path / "length.bin"
    path.write_bytes(encode_weights(make_header(limit=None), make_table({}, {})))
    shown = run("evaluate", judged, "--weights", path)
    assert "toy/../x: test learned nothing; its figures are the length rule's alone" in shown


def test_prompts_that_may_have_been_trained_on_are_told(
    judged: Path, weights: Path, tmp_path: Path
) -> None:
    told = "stand in rows of train; weights trained on those look better here than they are"
    assert told not in run("evaluate", judged, "--weights", weights)
    again = json.loads(judged.read_text().splitlines()[30])
    lines = [{**again, "prompt": again["prompt"].upper() + " ", "split": "test", "stem_hash": "x"}]
    path = tmp_path / "again.jsonl"
    path.write_text(judged.read_text() + "\n" + json.dumps(lines[0]))
    assert f"toy/../x: 1 of its 31 prompts {told}" in run("evaluate", path, "--weights", weights)
    shown = run("evaluate", judged, "--weights", weights, "--split", "train")
    assert f"toy/../x: 10 of its 10 prompts {told}" in shown


def test_calibrate(judged: Path, weights: Path) -> None:
    found = json.loads(run("calibrate", judged, "--weights", weights, "--quality", "1"))
    assert found["large_share"] == 0.5
    assert found["prompts"] == 30  # not those of train
    words = ["calibrate", str(judged), "--weights", str(weights), "--split", "train", "--cost", "1"]
    result = runner.invoke(app, words)
    assert json.loads(result.stdout)["prompts"] == 10
    assert "warning: weights that were trained on these rows look better" in result.stderr
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


def test_the_benchmark_skips_without_the_shared_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench, "SHARED", tmp_path / "none.parquet")
    monkeypatch.setattr("sys.argv", ["bench"])
    assert bench.main() == 0
    assert capsys.readouterr().out.startswith("skipped: the judged prompts are not here")


def test_the_benchmark_does_not_pass_over_a_file_that_was_named(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    judged: Path,
) -> None:
    def refusal(path: Path) -> str:
        monkeypatch.setattr("sys.argv", ["bench", "--data", str(path)])
        assert bench.main() == 2
        return capsys.readouterr().err

    assert "cannot be read" in refusal(tmp_path / "none.parquet")
    assert "no rows of test or ood of crux" in refusal(judged)  # none of the benchmark's datasets
    monkeypatch.setattr(bench, "find_spec", lambda _: None)
    assert "numpy and pyarrow not installed" in refusal(tmp_path / "none.parquet")


def test_the_benchmark_on_a_few_rows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench, "_CALLS", 10)
    lines = [
        {"prompt": "x" * 1600 + "y" * n, "weak_score": n % 2, "strong_score": 1, "split": "ood"}
        for n in range(20)
    ]
    path, out = tmp_path / "a.jsonl", tmp_path / "out.json"
    path.write_text("\n".join(json.dumps({**line, "dataset": "gsm8k"}) for line in lines))
    monkeypatch.setattr("sys.argv", ["bench", "--data", str(path), "--out", str(out)])
    assert bench.main() == 0
    goals = json.loads(out.read_text())["goals_met"]
    (fixed, length) = [(name, goals[name]) for name in goals if name.startswith("gsm8k")]
    assert fixed[0].startswith("gsm8k_apgr >= 0.598 (is ")
    assert not fixed[1]
    assert length[1]
    assert f"MISSED  {fixed[0]}" in capsys.readouterr().out


def test_labels_are_smoothed_to_the_pairs_mean() -> None:
    assert smooth([0.0, 1.0], [0.8, 0.8]) == [0.25, 0.75]
    assert smooth([1.0, 1.0, 0.0], [1.0, 0.0, 0.0]) == [1.0, 0.5, 0.0]  # none above 1


@pytest.mark.parametrize("name", ["../x", "a/b", "", "-x", "x" * 101, "a\n"])
def test_a_name_that_is_none_is_told_before_anything_is_asked(name: str, weights: Path) -> None:
    with pytest.raises(CliError, match=r"--name: .* is no classifier's name"):
        run("publish", weights, "--name", name)
    with pytest.raises(CliError, match=r"NAME: .* is no classifier's name"):
        run("rollback", "--", name)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--threshold", "nan"),
        ("--threshold", "inf"),
        ("--project-threshold", "prj_1=nan"),
        ("--cascade-weights", "1,2,nan,0"),
    ],
)
def test_a_score_that_is_no_number_is_called_by_its_option(option: str, value: str) -> None:
    given = ["--tier", "a=b", "--tier", "c=d", "--threshold", "0.1", option, value]
    with pytest.raises(CliError, match=f"^{option}"):
        runner.invoke(routes, ["set-tiers", "auto", *given], catch_exceptions=False)


def test_the_shipped_weights_are_those_of_the_model_card() -> None:
    for path in list_shipped().values():
        assert read_weights(path).digest in path.with_suffix(".md").read_text(encoding="utf-8")
