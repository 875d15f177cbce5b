"""Figures by hand, thresholds, the file of judged prompts; training only where torch is installed."""

from __future__ import annotations

import json
import random
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.complexity.predictor import decode_weights
from routing.learned.calibrate import Target, choose_threshold
from routing.learned.compare import compare_with_length
from routing.learned.curve import (
    bootstrap,
    find_recovery,
    is_large_better,
    measure_apgr,
    measure_cpt,
    measure_entropy,
    sample_curve,
)
from routing.learned.evaluate import evaluate
from routing.learned.judged_prompts import (
    DataError,
    JudgedPrompt,
    fold_of,
    group_questions,
    read_judged_prompts,
)
from routing.learned.target_error import TargetError
from routing.learned.targets import make_targets
from tests.unit.routing.test_complexity import make_predictor

WEAK = np.array([1.0, 0.0, 1.0, 0.0])
STRONG = np.array([1.0, 1.0, 1.0, 1.0])


def make_rows(count: int) -> list[JudgedPrompt]:
    """Prompts in which one word tells that only the large model can answer."""
    rows = []
    for number in range(count):
        is_hard = number % 2
        word = "prove" if is_hard else "say"
        prompt = f"{word} case{number} item{number % 7}"
        split = "test" if number % 5 == 0 else "train"
        rows.append(
            JudgedPrompt(str(number), "toy", "", prompt, 1.0 - is_hard, 1.0, split, str(number))
        )
    return rows


def test_recovery_by_hand() -> None:
    best = STRONG - WEAK
    assert measure_apgr(best, WEAK, STRONG) == pytest.approx((0.25 + 0.75 + 1 + 1) / 4)
    assert measure_cpt(best, WEAK, STRONG, 0.5) == 25.0
    assert measure_cpt(best, WEAK, STRONG, 0.8) == 50.0
    assert measure_apgr(-best, WEAK, STRONG) == pytest.approx(0.25)
    curve = sample_curve(best, WEAK, STRONG)
    assert (curve[0], curve[-1]) == ([0.0, 0.5], [1.0, 1.0])


@given(st.lists(st.floats(-1, 1), min_size=4, max_size=4))
def test_no_ranking_beats_the_oracle(scores: list[float]) -> None:
    best = measure_apgr(STRONG - WEAK, WEAK, STRONG)
    assert measure_apgr(scores, WEAK, STRONG) <= best + 1e-9


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.1, 0.3]),
            st.sampled_from([0.0, 0.1, 0.7, 1.0]),
            st.sampled_from([0.2, 0.7, 1.0]),
        ),
        min_size=1,
        max_size=30,
    ),
    st.randoms(use_true_random=False),
)
def test_the_order_of_rows_changes_no_figure(rows: list[Any], drawn: random.Random) -> None:
    def judge(rows: list[Any]) -> list[Any]:
        scores, weak, strong = map(np.array, zip(*rows, strict=True))
        if not is_large_better(weak, strong):
            return []
        target = Target(quality=0.9)
        return [
            find_recovery(scores, weak, strong).tolist(),
            measure_apgr(scores, weak, strong),
            measure_cpt(scores, weak, strong, 0.5),
            bootstrap(scores, weak, strong, times=5, seed=1),
            choose_threshold(scores, weak, strong, target).threshold,
        ]

    assert judge(drawn.sample(rows, len(rows))) == judge(rows)


def test_among_equal_scores_recovery_is_the_mean_over_all_orders() -> None:
    weak, strong = np.array([0.0, 0.0, 1.0, 0.5]), np.array([1.0, 1.0, 0.0, 1.0])
    scores = np.array([0.9, 0.2, 0.2, 0.2])
    orders = []
    for rest in permutations([1, 2, 3]):
        gains = (strong - weak)[[0, *rest]]
        orders.append(np.concatenate([[0], np.cumsum(gains)]) / gains.sum())
    assert find_recovery(scores, weak, strong) == pytest.approx(np.mean(orders, axis=0))


def test_a_constant_is_the_random_mix_however_the_rows_are_sorted() -> None:
    weak = (np.arange(400) % 2).astype(float)
    for places in (np.argsort(weak), np.argsort(-weak)):
        rows = [
            JudgedPrompt(str(i), "toy", "", "the same prompt", weak[i], 1.0, "test", str(i))
            for i in places
        ]
        routers = evaluate(make_predictor(), rows, times=20)["datasets"]["toy"]["routers"]
        for name in ("classifier", "length", "random"):
            assert routers[name]["apgr"] == pytest.approx(0.5)
            assert (routers[name]["cpt50"], routers[name]["cpt80"]) == (50, 80)
        assert routers["oracle"]["apgr"] == pytest.approx(0.75)


def test_intervals_hold_the_figure_and_repeat() -> None:
    drawn = np.random.default_rng(5)
    scores, weak = drawn.random(400), (drawn.random(400) < 0.5).astype(float)
    strong = np.ones(400)
    first = bootstrap(scores, weak, strong, times=50, seed=1)
    low, high = first["apgr"]
    assert low < measure_apgr(scores, weak, strong) < high
    assert first == bootstrap(scores, weak, strong, times=50, seed=1)


def test_entropy_tells_a_constant() -> None:
    assert measure_entropy(np.full(50, 0.3)) == 0.0
    assert measure_entropy(np.linspace(0, 1, 2000)) > 0.98


@pytest.mark.parametrize(
    ("target", "large_share"),
    [
        (Target(large_share=0.3), 0.25),
        (Target(large_share=0.0), 0.0),
        (Target(cost=0.51), 0.5),
        (Target(quality=1.0), 0.5),
        (Target(quality=0.5), 0.0),
    ],
)
def test_thresholds(target: Target, large_share: float) -> None:
    scores = np.array([0.1, 0.9, 0.2, 0.8])
    found = choose_threshold(scores, WEAK, STRONG, target)
    assert found.large_share == large_share
    assert np.mean(scores >= found.threshold) == large_share


def test_equal_scores_are_routed_alike() -> None:
    with pytest.raises(TargetError):
        choose_threshold(np.ones(4), WEAK, STRONG, Target(cost=0.001))
    found = choose_threshold(np.ones(4), WEAK, STRONG, Target(large_share=0.5))
    assert found.large_share == 0.0


def test_targets_are_refused() -> None:
    scores = np.arange(4.0)
    for target in (Target(), Target(large_share=0.1, cost=0.2), Target(cost=0.5, times_dearer=1)):
        with pytest.raises(TargetError):
            choose_threshold(scores, WEAK, STRONG, target)
    with pytest.raises(TargetError):
        choose_threshold(scores, STRONG, WEAK, Target(large_share=0.5))


def test_csv_and_jsonl_say_the_same(tmp_path: Path) -> None:
    jsonl, csv = tmp_path / "a.jsonl", tmp_path / "a.csv"
    jsonl.write_text('{"id": "1", "prompt": "x, y", "weak_score": 0, "strong_score": 1}\n\n')
    csv.write_text('id,prompt,weak_score,strong_score\n1,"x, y",0,1\n')
    assert read_judged_prompts(jsonl) == read_judged_prompts(csv)
    assert read_judged_prompts(csv)[0].split in {"train", "test"}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "{",
        '{"prompt": ""}',
        '{"prompt": "x", "weak_score": 0}',
        '{"prompt": "x", "weak_score": NaN, "strong_score": 1}',
        f'{{"prompt": "x", "weak_score": 1{"0" * 400}, "strong_score": 1}}',
        "[" * 100_000 + "]" * 100_000,
        '{"prompt": "x", "weak_score": 0, "strong_score": 1, "split": "dev"}',
    ],
)
def test_wrong_files_are_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(DataError):
        read_judged_prompts(path)
    with pytest.raises(DataError):
        read_judged_prompts(tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", b"prompt,weak_score,strong_score\n\xff\xfe,0,1\n", "not UTF-8"),
        ("a.jsonl", b'{"prompt": "\xff"}', "not UTF-8"),
        ("a.csv", b"text,weak_score\nx,0\n", "no column prompt; its columns: text, weak"),
        ("a.csv", b"prompt,weak_score\nx,0\n", "row 1 has no column strong_score"),
        ("A.CSV", b"prompt;weak_score;strong_score\n", "A.CSV has no rows"),
        ("a.csv", b"prompt,weak_score,strong_score\n", "no rows"),
    ],
)
def test_a_wrong_file_is_told_in_a_sentence(
    name: str, content: bytes, told: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=told):
        read_judged_prompts(path)


def test_what_a_table_writes_for_nothing_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    names = ("id", "dataset", "category", "stem_hash", "split", "weak_model", "strong_model")
    lines = [{"prompt": f"x {n}", "weak_score": 0, "strong_score": 1} for n in range(9)]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    without = read_judged_prompts(path)
    for nothing in (float("nan"), None, ""):
        path.write_text(
            "\n".join(json.dumps({**line, **dict.fromkeys(names, nothing)}) for line in lines)
        )
        assert read_judged_prompts(path) == without
    path.write_text(json.dumps({**lines[0], "stem_hash": "\ud800", "dataset": "\ud800"}))
    (row,) = read_judged_prompts(path)
    assert (row.dataset.encode(), fold_of(row.stem) in range(5)) == (b"?", True)


def test_a_text_is_one_question_under_whatever_stem() -> None:
    def row(prompt: str, stem: str) -> JudgedPrompt:
        return JudgedPrompt("1", "toy", "", prompt, 0.0, 1.0, "train", stem)

    rows = [row("What is 2?", "b"), row("what  is 2?\n", "a"), row("What is 3?", "b")]
    assert group_questions(rows) == ["a", "a", "b"]
    assert group_questions(rows[::-1]) == ["b", "a", "a"]


def test_no_parquet_is_told_in_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="Parquet needs pyarrow: pip install forebay[train]")
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="no Parquet file"):
        read_judged_prompts(path)


def test_a_spreadsheets_csv_and_a_long_prompt_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    prompt = "x " * 100_000
    path.write_text(f"\ufeffprompt,weak_score,strong_score\n{prompt},0,1\n", encoding="utf-8")
    assert read_judged_prompts(path)[0].prompt == prompt


def test_marks_are_scaled_where_they_are_marks() -> None:
    rows = [
        JudgedPrompt("1", "marks", "", "x", 5.0, 9.0, "test", "1"),
        JudgedPrompt("2", "labels", "", "x", 0.0, 1.0, "test", "2"),
    ]
    assert make_targets(rows).tolist() == [[0.5, 0.9], [0.0, 1.0]]


def test_a_dataset_with_two_pairs_is_judged_by_pair() -> None:
    rows = [
        JudgedPrompt(str(number), "toy", "", f"x {number}", 0.0, 1.0, "test", "1", pair)
        for number, pair in enumerate(["a / b", "a / c"])
    ]
    report = evaluate(make_predictor(), rows, times=1)
    assert list(report["datasets"]) == ["toy (a / b)", "toy (a / c)"]


def test_a_few_hundred_prompts_are_no_proof() -> None:
    drawn = np.random.default_rng(1)
    strong = np.ones(4000)
    weak = (drawn.random(4000) < 0.5).astype(float)
    lengths = drawn.random(4000)
    scores = drawn.random(4000) - 0.1 * weak
    many = compare_with_length(scores, lengths, weak, strong, seed=1)
    few = compare_with_length(scores[:60], lengths[:60], weak[:60], strong[:60], seed=1)
    assert many.is_better
    assert not few.is_better
    assert many == compare_with_length(scores, lengths, weak, strong, seed=1)
    turned = drawn.permutation(60)
    columns = [column[:60][turned] for column in (scores, lengths, weak, strong)]
    assert few == compare_with_length(*columns, seed=1)


def test_training_learns_and_test_rows_change_nothing() -> None:
    pytest.importorskip("torch", reason="training needs torch: pip install forebay[train]")
    from routing.learned.make_weights import make_weights
    from routing.learned.train import Plan

    rows = make_rows(300)
    plan = Plan(bits=12, penalties=(0.1, 1.0))
    made = make_weights(rows, name="toy", plan=plan, say=lambda _: None)
    predictor = decode_weights(made.data)
    held_out = [row for row in rows if row.split == "test"]
    report = evaluate(predictor, held_out, times=20)["datasets"]["toy"]
    assert report["routers"]["classifier"]["apgr"] > 0.7
    assert json.loads(json.dumps(report)) == report
    turned = [
        row
        if row.split == "train"
        else JudgedPrompt(row.id, "toy", "", row.prompt, 1.0, 0.0, "test", row.stem)
        for row in rows
    ]
    again = make_weights(turned[::-1], name="toy", plan=plan, say=lambda _: None)
    assert again.data == made.data
