"""Reading judged prompts: CSV, JSONL or Parquet in the documented format (docs/complexity-routing.md)."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

FOLDS = 5
SPLITS = ("train", "test", "ood")
_MAX_FIELD_CHARACTERS = 1 << 24


class DataError(ValueError):
    """The file of judged prompts is not as documented."""


@dataclass(frozen=True, slots=True)
class JudgedPrompt:
    """One prompt with what both models' answers were worth. ``stem`` keeps variants of a question together.

    ``pair`` names the models, small then large; empty where the file does not.
    """

    id: str
    dataset: str
    category: str
    prompt: str
    weak_score: float
    strong_score: float
    split: str
    stem: str
    pair: str = ""


def group_questions(rows: Sequence[JudgedPrompt]) -> list[str]:
    """Return for each row the question that it belongs to: its stem, of one text in several stems the least.

    A file may name its rows' stems apart though they ask the same; held out beside itself a text
    would be judged by weights that have seen it.
    """
    texts = [plain_text(row.prompt) for row in rows]
    least: dict[str, str] = {}
    for row, text in zip(rows, texts, strict=True):
        least[text] = min(least.get(text, row.stem), row.stem)
    return [least[text] for text in texts]


def fold_of(question: str) -> int:
    """Return the part, 0..FOLDS-1, in which a question is held out while settings are chosen."""
    return int(sha256(f"fold:{question}".encode()).hexdigest()[:8], 16) % FOLDS


def plain_text(prompt: str) -> str:
    """Return a text without what no reader would call a difference: case and white space."""
    return " ".join(prompt.casefold().split())


def read_judged_prompts(path: Path) -> list[JudgedPrompt]:
    """Read a file; its ending tells the format.

    Raises:
        DataError: unknown ending, damage, a missing column, a score that is no number, or no rows.
        OSError: it cannot be read.
    """
    rows = [_read_row(row, number) for number, row in enumerate(read_rows(path), 1)]
    if not rows:
        raise DataError(f"{path.name} has no rows")
    return rows


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield a file's rows by column. Raises as :func:`read_judged_prompts`, of the file as a whole."""
    try:
        yield from _rows_by_ending(path)
    except UnicodeDecodeError as error:
        raise DataError(f"{path.name} is not UTF-8") from error
    except csv.Error as error:
        raise DataError(f"{path.name} is no CSV: {error}") from error


def _rows_by_ending(path: Path) -> Iterator[dict[str, Any]]:
    ending = path.suffix.lower()
    if ending == ".csv":
        csv.field_size_limit(_MAX_FIELD_CHARACTERS)
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets write a mark first
            yield from csv.DictReader(file)
    elif ending in {".jsonl", ".ndjson"}:
        with path.open(encoding="utf-8-sig") as file:
            yield from _json_rows(file)
    elif ending == ".parquet":
        yield from _parquet_rows(path)
    else:
        raise DataError(f"{path.name}: give a .csv, .jsonl or .parquet file")


def _parquet_rows(path: Path) -> list[dict[str, Any]]:
    try:
        from pyarrow import ArrowException, parquet  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise DataError("Parquet needs pyarrow: pip install forebay[train]") from error
    path.open("rb").close()  # what cannot be read is told as with the other formats
    try:
        found: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except ArrowException as error:
        raise DataError(f"{path.name} is no Parquet file") from error
    return found


def _json_rows(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"line {number} is not JSON, or nested too deep") from error
        if not isinstance(row, dict):
            raise DataError(f"line {number} is not a JSON object")
        yield row


def _read_row(row: dict[str, Any], number: int) -> JudgedPrompt:
    prompt = row.get("prompt")
    for name in ("prompt", "weak_score", "strong_score"):
        if name not in row:
            columns = ", ".join(str(one)[:40] for one in [*row][:12])
            raise DataError(f"row {number} has no column {name}; its columns: {columns}")
    if not isinstance(prompt, str) or not prompt:
        raise DataError(f"row {number} has no prompt")
    hashed = sha256(prompt.encode("utf-8", "replace")).hexdigest()[:16]
    stem = _read_text(row, "stem_hash") or hashed
    split = _read_text(row, "split") or _split_by(stem)
    if split not in SPLITS:
        raise DataError(f"row {number}: split is one of {', '.join(SPLITS)}, not {split!r}")
    return JudgedPrompt(
        id=_read_text(row, "id") or str(number),
        dataset=_read_text(row, "dataset") or "all",
        category=_read_text(row, "category"),
        prompt=prompt,
        weak_score=_read_score(row, "weak_score", number),
        strong_score=_read_score(row, "strong_score", number),
        split=split,
        stem=stem,
        pair=_read_pair(row),
    )


def _read_pair(row: dict[str, Any]) -> str:
    models = [_read_text(row, name) for name in ("weak_model", "strong_model")]
    return " / ".join(filter(None, models))


def _read_text(row: dict[str, Any], name: str) -> str:
    """Return a column as text, "" where it is absent: no value, or a number that is none."""
    value = row.get(name)
    if value is None or value != value:  # noqa: PLR0124 - NaN, as tables write what is not there
        return ""
    return str(value).encode("utf-8", "replace").decode()


def _split_by(stem: str) -> str:
    return "test" if int(sha256(f"split:{stem}".encode()).hexdigest()[:8], 16) % 10 < 3 else "train"


def _read_score(row: dict[str, Any], name: str, number: int) -> float:
    try:
        score = float(row[name])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"row {number}: {name} is not a number") from error
    # Judges' marks of 1 to 10 go in as they are for evaluation; training brings them to 0..1.
    if not 0.0 <= score <= 10.0:
        raise DataError(f"row {number}: {name} is not within 0..10")
    return score
