"""The rows that the shipped weights ``llama-8b-70b`` were trained on: labels smoothed by other models' answers.

``python -m benchmarks.routing.smooth_labels rows.jsonl [--data file.parquet]``; beside the data lies
``model_scores.csv.gz``. Half of a label is the pair's own score, half the mean of the other models' on the
same prompt, scaled to the pair's mean. Only rows of ``train`` are read, and only those of MMLU-Pro smoothed.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.routing.__main__ import SHARED
from routing.learned.judged_prompts import JudgedPrompt, read_judged_prompts

PAIR = "llama-3.1-8b-instruct / llama-3.1-70b-instruct"
SMOOTHED = "mmlu_pro"
LIKE_SMALL = (
    "Mistral-7B-Instruct-v0.2",
    "Phi-3-mini-4k-instruct",
    "Qwen1.5-7B-Chat",
    "Mixtral-8x7B-Instruct-v0.1",
)
LIKE_LARGE = ("Qwen1.5-72B-Chat", "gemini-1.5-flash-002", "gemini-1.5-pro-002")


def main() -> None:
    """Write the rows as JSONL."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, default=SHARED)
    options = parser.parse_args()
    rows = [
        row
        for row in read_judged_prompts(options.data)
        if row.split == "train" and row.pair == PAIR
    ]
    known = read_scores(options.data.with_name("model_scores.csv.gz"))
    smoothed = [row for row in rows if row.dataset == SMOOTHED]
    weak = smooth([row.weak_score for row in smoothed], average(smoothed, known, LIKE_SMALL))
    strong = smooth([row.strong_score for row in smoothed], average(smoothed, known, LIKE_LARGE))
    made = [
        replace(row, weak_score=one, strong_score=other)
        for row, one, other in zip(smoothed, weak, strong, strict=True)
    ]
    made += [row for row in rows if row.dataset != SMOOTHED]
    lines = [json.dumps(_write_row(row)) for row in made]
    options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_scores(path: Path) -> dict[tuple[str, str], float]:
    """Return what each model's answer to each prompt was worth, by the row's id and the model's name."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return {(row["id"], row["model"]): float(row["score"]) for row in csv.DictReader(file)}


def average(
    rows: Sequence[JudgedPrompt], known: dict[tuple[str, str], float], models: Sequence[str]
) -> list[float]:
    """Return for each row the mean score of those of ``models`` that have answered it."""
    told = [[known[key] for one in models if (key := (row.id, one)) in known] for row in rows]
    return [sum(scores) / len(scores) for scores in told]


def smooth(own: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return labels of half ``own`` and half ``others``, these scaled to the mean of ``own``, 1 at most."""
    scale = sum(own) / sum(others)
    return [
        0.5 * one + 0.5 * min(other * scale, 1.0) for one, other in zip(own, others, strict=True)
    ]


def _write_row(row: JudgedPrompt) -> dict[str, str | float]:
    small, large = row.pair.split(" / ")
    return {
        "id": row.id,
        "dataset": row.dataset,
        "category": row.category,
        "prompt": row.prompt,
        "weak_model": small,
        "strong_model": large,
        "weak_score": row.weak_score,
        "strong_score": row.strong_score,
        "stem_hash": row.stem,
        "split": row.split,
    }


if __name__ == "__main__":
    main()
