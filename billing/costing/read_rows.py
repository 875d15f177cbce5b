"""Rows out of a text that is CSV or JSON. Pure: files are read by the command. Numbers stay text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

from billing.costing.errors import CostingError

Row = Mapping[str, str]


def read_rows(text: str) -> list[Row]:
    """Return the rows of a CSV with a heading, of a JSON list, or of JSON with a list in ``data``.

    Raises :class:`CostingError` for anything else.
    """
    stripped = text.lstrip("\ufeff \t\r\n")
    if not stripped:
        raise CostingError("the file is empty")
    if stripped[0] in "[{":
        return [_as_row(entry) for entry in _read_json_list(stripped)]
    try:
        return _read_csv(stripped)
    except csv.Error as error:
        raise CostingError(f"the file is no valid CSV: {error}") from error


def read_json(text: str) -> Any:
    """Return parsed JSON whose numbers are text as written, so that no digit is lost."""
    try:
        return json.loads(text, parse_float=str, parse_int=str)
    except (json.JSONDecodeError, RecursionError) as error:
        raise CostingError("the file is no valid JSON") from error


def _read_csv(text: str) -> list[Row]:
    reader = csv.DictReader(io.StringIO(text, newline=None))
    rows: list[Row] = []
    for row in reader:
        if None in row or None in row.values():
            raise CostingError(f"line {reader.line_num} has not as many fields as the heading")
        rows.append({key.strip().lower(): value.strip() for key, value in row.items()})
    return rows


def _read_json_list(text: str) -> list[Any]:
    content = read_json(text)
    if isinstance(content, dict):
        content = content.get("data")
    if not isinstance(content, list):
        raise CostingError("the file has no list of rows (a JSON list, or one under data)")
    return content


def _as_row(entry: Any) -> Row:
    if not isinstance(entry, dict):
        raise CostingError("a row of the file is no object")
    return {str(key).lower(): str(value) for key, value in entry.items() if value is not None}


def get_count(row: Row, *names: str) -> int:
    """Return the first of the named fields as a count. Raises :class:`CostingError`."""
    for name in names:
        text = row.get(name, "")
        if text:
            if not (text.isascii() and text.isdigit() and len(text) <= 18):
                raise CostingError(f"{name} is {text!r:.40}, which is no count")
            return int(text)
    raise CostingError(f"a row has no {names[0]}")


def find_count(row: Row, *names: str) -> int | None:
    """Return the first of the named fields as a count, None where there is none."""
    if not any(row.get(name) for name in names):
        return None
    return get_count(row, *names)
