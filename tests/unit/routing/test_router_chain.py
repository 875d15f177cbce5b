"""``forebay router`` from judged prompts to a tier: train, evaluate, calibrate, explain, on generated files.

Needs what training needs; skipped without it.
"""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli.errors import CliError
from gateway.cli.router import app
from routing.complexity.predictor import read_weights

pytest.importorskip("torch", reason="training needs torch: pip install forebay[train]")

from routing.learned.make_weights import join_least

runner = CliRunner()
HARD = ("prove", "derive", "theorem", "integral")
EASY = ("greet", "weather", "colour", "capital")


def make_line(number: int, **changes: Any) -> dict[str, Any]:
    """One judged prompt; every second needs the large model, and its words say so."""
    is_hard = number % 2
    word = (HARD if is_hard else EASY)[number // 2 % 4]
    return {
        "id": f"q{number}",
        "dataset": "toy",
        "category": word,
        "prompt": f"Please {word} the case {number % 11} of item {number}.",
        "weak_model": "small",
        "strong_model": "large",
        "weak_score": 1 - is_hard,
        "strong_score": 1,
        **changes,
    }


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    elif path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(lines), path)
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(lines[0]))
            writer.writeheader()
            writer.writerows(lines)
    return path


def run(*words: str | Path) -> str:
    result = runner.invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def train(file: Path, *options: str) -> tuple[Path, dict[str, Any]]:
    out = file.with_name(f"{file.stem}{file.suffix[1:]}.bin")
    told = run("train", file, "--out", out, "--penalty", "1", *options)
    summary: dict[str, Any] = json.loads(told)
    return out, summary


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_the_whole_chain(ending: str, tmp_path: Path) -> None:
    file = write(tmp_path / f"judged.{ending}", [make_line(number) for number in range(240)])
    weights, summary = train(file, "--name", "toy-weights")
    assert summary["pairs"]["small / large"]["learned_from"] == ["toy"]
    report, plots = tmp_path / "report.json", tmp_path / "plots"
    judging = ("evaluate", file, "--weights", weights, "--split", "test")
    assert "toy" in run(*judging, "--report", report, "--plots", plots)
    entry = json.loads(report.read_text())["datasets"]["toy"]
    assert entry["routers"]["classifier"]["apgr"] > 0.7 > entry["routers"]["length"]["apgr"]
    assert [path.name for path in plots.iterdir()] == ["toy.svg"]
    found = json.loads(
        run("calibrate", file, "--weights", weights, "--split", "test", "--quality", "0.99")
    )
    assert found["large_share"] < 0.6
    threshold = str(found["threshold"])
    for word, tier in (("derive", "large"), ("weather", "small")):
        prompt = f"Please {word} the case 3 of item 5000."
        told = json.loads(run("explain", prompt, "--weights", weights, "--threshold", threshold))
        assert told["tier"] == tier
        assert told["pair"] == "small / large"
        assert told["weights"] == {"name": "toy-weights", "sha256": summary["sha256"]}


def test_the_same_file_makes_the_same_weights(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", [make_line(number) for number in range(60)])
    first, _ = train(file, "--seed", "7")
    bytes_of_first = first.read_bytes()
    assert train(file, "--seed", "7")[0].read_bytes() == bytes_of_first


def test_each_pair_of_models_is_a_part(tmp_path: Path) -> None:
    """The second pair is the other way round, and longer: what a word means is not mixed."""
    lines = [make_line(number) for number in range(160)]
    for number in range(160):
        line = make_line(number, dataset="other", weak_model="a", strong_model="b")
        line["weak_score"] = 1 - line["weak_score"]
        line["prompt"] = f"{line['prompt']}\nA. yes\nB. no\nC. 12 34 56\nD. 78\n"
        lines.append(line)
    weights, summary = train(write(tmp_path / "two.jsonl", lines))
    assert {pair: one["learned_from"] for pair, one in summary["pairs"].items()} == {
        "small / large": ["toy"],
        "a / b": ["other"],
    }
    predictor = read_weights(weights)
    assert [part.pair for part in predictor.header.parts] == ["a / b", "small / large"]
    hard, easy = (make_line(number)["prompt"] for number in (161, 160))
    options = "\nA. yes\nB. no\nC. 12 34 56\nD. 78\n"
    assert predictor.predict(hard).score > predictor.predict(easy).score
    assert predictor.predict(hard + options).score < predictor.predict(easy + options).score
    alone, summary = train(write(tmp_path / "one.jsonl", lines), "--pair", "small / large")
    assert [part.pair for part in read_weights(alone).header.parts] == ["small / large"]


@pytest.mark.parametrize(
    "lines",
    [
        [make_line(number, weak_score=int(number % 3 == 0)) for number in range(24)],
        [make_line(number, split="train") for number in range(5)],
        [make_line(number, weak_score=0) for number in range(60)],  # one outcome
    ],
    ids=["few", "five", "one-outcome"],
)
def test_a_small_set_learns_nothing_and_length_decides(
    lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    file = write(tmp_path / "few.csv", lines)
    weights, summary = train(file)
    assert summary["pairs"]["small / large"]["learned_from"] == []
    assert not summary["has_learned"]
    assert summary["note"].startswith("nothing was learned: ")
    judged = runner.invoke(
        app, ["evaluate", str(file), "--weights", str(weights), "--split", "train"]
    )
    assert "toy: own learned nothing; its figures are the length rule's alone" in judged.stdout
    predictor = read_weights(weights)
    short, longer = predictor.predict("prove it"), predictor.predict("prove it " * 30)
    assert not short.is_in_domain
    assert short.score < longer.score


def test_many_small_datasets_are_learned_from_as_one(tmp_path: Path) -> None:
    """Each has one kind of prompt only: what can be learned is which of them needs the large model."""
    words = [*HARD, *EASY] * 2
    lines = [
        make_line(number, dataset=f"{place}-{word}", prompt=f"Please {word} item {number}.")
        | {"weak_score": int(word in EASY) if number % 9 else number % 2}
        for place, word in enumerate(words)
        for number in range(40)
    ]
    _, summary = train(write(tmp_path / "small.jsonl", lines))
    (pair,) = summary["pairs"].values()
    assert pair["learned_from"] == ["16 small datasets"]
    assert pair["held_out"]["16 small datasets"]["classifier"] > 0.7


def test_of_many_groups_the_rarest_are_joined() -> None:
    names = [f"d{number}" for number in range(9) for _ in range(number + 1)]
    joined = join_least(names, 4)
    assert sorted({*joined}) == ["d6", "d7", "d8", "others"]
    assert joined.count("others") == 1 + 2 + 3 + 4 + 5 + 6
    assert join_least(names, 9) == names


def test_what_looks_like_what_was_learned_is_learned_from_too(tmp_path: Path) -> None:
    """It is scored by it all the same; of this one alone nothing could be said."""
    lines = [make_line(number, split="train") for number in range(320)]
    alike = [
        make_line(n, dataset="alike", split="train", weak_score=n % 3 // 2) for n in range(310)
    ]
    other = [
        make_line(
            n, dataset="other", split="train", weak_score=n % 3 // 2, prompt="1 + 1\n" * (n + 9)
        )
        for n in range(310)
    ]
    _, summary = train(write(tmp_path / "alike.jsonl", lines + alike + other))
    (pair,) = summary["pairs"].values()
    assert (pair["learned_from"], pair["also_learned_from"]) == (["toy"], ["alike"])


def test_a_text_that_comes_again_is_no_proof(tmp_path: Path) -> None:
    """Labels are noise; every text stands four times in the file, under a stem of its own."""
    drawn = random.Random(5)
    lines = [
        {**line, "id": f"{number} {copy}", "stem_hash": f"{number} {copy}", "split": "train"}
        for number in range(150)
        for line in [make_line(number, weak_score=drawn.randrange(2), prompt=f"case n{number}")]
        for copy in range(4)
    ]
    _, summary = train(write(tmp_path / "again.csv", lines))
    assert not summary["has_learned"]


@pytest.mark.parametrize("prompt", ["...", "\ud800"])
def test_prompts_without_a_word_do_no_harm(prompt: str, tmp_path: Path) -> None:
    lines = [make_line(number, prompt=prompt * (number + 1)) for number in range(40)]
    train(write(tmp_path / "empty.jsonl", lines))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"weak_score": 1, "strong_score": 1}, "the large model is better in none"),
        ({"weak_score": 1, "strong_score": 0}, "the large model is better in none"),
        ({"stem_hash": "x", "split": "train"}, "all training rows are one question"),
        ({"split": "test"}, r"no rows of this dataset, pair and split \(train\)"),
        ({"weak_score": "good"}, "row 1: weak_score is not a number"),
        ({"prompt": ""}, "row 1 has no prompt"),
    ],
)
def test_what_cannot_be_learned_from_is_one_sentence(
    changes: dict[str, Any], told: str, tmp_path: Path
) -> None:
    file = write(tmp_path / "bad.csv", [make_line(number, **changes) for number in range(30)])
    with pytest.raises(CliError, match=told):
        train(file)


def test_where_nothing_can_be_written_nothing_is_trained(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", [make_line(number) for number in range(30)])
    with pytest.raises(CliError, match="cannot be written"):
        run("train", file, "--out", tmp_path / "none" / "a.bin")
    for wrong in ("nan", "-1"):
        with pytest.raises(CliError, match=r"^--penalty must be a finite number"):
            run("train", file, "--out", tmp_path / "a.bin", "--penalty", wrong)
