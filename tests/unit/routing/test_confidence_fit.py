"""``forebay router calibrate-cascade``: known weights are found again, targets are met, damage is told."""

from __future__ import annotations

import json
import random
from math import exp
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from gateway.cli.errors import CliError
from gateway.cli.router import app
from routing.complexity.confidence import Beginning, measure_confidence
from routing.learned.confidence import (
    JudgedBeginning,
    Weights,
    calibrate_cascade,
    fit_weights,
)
from routing.learned.target_error import TargetError

runner = CliRunner()
_TRUE = Weights(2.0, 3.0, 0.5, -1.5)


def make_rows(count: int, true: Weights = _TRUE, seed: int = 1) -> list[JudgedBeginning]:
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        mean = -chance.expovariate(2.0)
        beginning = Beginning(max(mean, -20.0), max(mean - chance.expovariate(0.7), -20.0))
        score = chance.uniform(-1, 1)
        exponent = sum(w * f for w, f in zip(true, (1.0, *beginning, score), strict=True))
        is_good = chance.random() < 1 / (1 + exp(-max(min(exponent, 40.0), -40.0)))
        rows.append(JudgedBeginning(beginning, score, is_good))
    return rows


def test_known_weights_are_found_again() -> None:
    found = fit_weights(make_rows(4000), penalty=0.01)
    for weight, true in zip(found, _TRUE, strict=True):
        assert weight == pytest.approx(true, abs=0.3)


def test_a_penalty_shrinks_all_but_the_bias() -> None:
    rows = make_rows(300)
    weak, strong = fit_weights(rows, penalty=0.01), fit_weights(rows, penalty=1e6)
    assert max(abs(weight) for weight in strong[1:]) < 0.01 < abs(weak.mean_logprob)
    share = sum(row.is_good for row in rows) / len(rows)
    assert 1 / (1 + exp(-strong.bias)) == pytest.approx(share, abs=0.01)


def test_a_figure_that_would_count_the_wrong_way_is_left_out() -> None:
    found = fit_weights(make_rows(2000, Weights(0.0, -2.0, 1.0, 1.0)))
    assert found.mean_logprob == 0
    assert found.prompt_score == 0
    assert found.min_logprob >= 0


def test_rows_that_are_told_apart_for_sure_have_an_end() -> None:
    rows = [JudgedBeginning(Beginning(-0.1 - i % 2, -2.0), 0.0, i % 2 == 0) for i in range(60)]
    found = fit_weights(rows, penalty=0.1)
    assert measure_confidence(found, Beginning(-0.1, -2.0), 0.0) > 0.8
    assert measure_confidence(found, Beginning(-1.1, -2.0), 0.0) < 0.2


def test_the_order_of_rows_changes_nothing() -> None:
    rows = make_rows(80)
    turned = random.Random(3).sample(rows, len(rows))
    assert calibrate_cascade(turned, share_kept=0.6) == calibrate_cascade(rows, share_kept=0.6)


def test_targets_are_met() -> None:
    rows = make_rows(400)
    found = calibrate_cascade(rows, share_kept=0.6)
    assert 0.6 <= found.share_kept < 0.62
    assert found.quality_kept > found.quality_of_all + 0.1
    assert found.ranking > 0.75
    assert found.log_loss < found.log_loss_of_share
    good = calibrate_cascade(rows, quality=0.9)
    assert good.quality_kept >= 0.9
    assert good.keep_at > calibrate_cascade(rows, quality=0.8).keep_at
    for wrong in ({}, {"share_kept": 0.5, "quality": 0.5}, {"share_kept": 0.0}):
        with pytest.raises(TargetError):
            calibrate_cascade(rows, **wrong)


def ask(path: Path, rows: list[JudgedBeginning]) -> Result:
    """Calibrate by the command on a file of these rows."""
    lines = ["mean_logprob,min_logprob,prompt_score,good"]
    lines += [
        f"{row.beginning.mean_logprob},{row.beginning.min_logprob},{row.prompt_score},{int(row.is_good)}"
        for row in rows
    ]
    path.write_text("\n".join(lines))
    words = ["calibrate-cascade", str(path), "--share-kept", "0.5"]
    return runner.invoke(app, words, catch_exceptions=False)


def test_the_command(tmp_path: Path) -> None:
    result = ask(tmp_path / "answers.csv", make_rows(200))
    told = json.loads(result.stdout)
    assert told["rows"] == 200
    assert told["options"].startswith(f"--keep-at {told['keep_at']:.4f} --cascade-weights=")
    assert set(told["weights"]) == {"bias", "mean_logprob", "min_logprob", "prompt_score"}
    assert (told["note"], result.stderr) == (None, "")


def test_a_confidence_that_says_nothing_is_called_luck(tmp_path: Path) -> None:
    result = ask(tmp_path / "answers.csv", make_rows(200, Weights(0.5, 0.0, 0.0, 0.0)))
    told = json.loads(result.stdout)
    assert told["note"].startswith("nothing was learned")
    assert result.stderr.startswith("warning: nothing was learned")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"mean_logprob": -1, "min_logprob": -2}, "good is 0 or 1"),
        ({"mean_logprob": -1, "min_logprob": -0.5, "good": 1}, "at most mean_logprob"),
        ({"mean_logprob": 0.5, "min_logprob": -0.5, "good": 1}, "at most 0"),
        ({"mean_logprob": "x", "min_logprob": -0.5, "good": True}, "mean_logprob is no number"),
        ({"mean_logprob": -1, "min_logprob": -2, "good": 1}, "1 rows, 1 of them good"),
    ],
)
def test_damage_is_told(tmp_path: Path, row: dict[str, object], says: str) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(CliError, match=says):
        runner.invoke(
            app, ["calibrate-cascade", str(path), "--quality", "0.5"], catch_exceptions=False
        )
