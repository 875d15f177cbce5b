"""What commands print: a table for people, JSON for programs, plain columns for pipes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

Columns = Sequence[tuple[str, str]]  # heading, field


def print_json(content: Any) -> None:
    """Print ``content`` as JSON, amounts as the strings that they are."""
    print(json.dumps(content, indent=2, ensure_ascii=False))


def print_table(rows: Sequence[Mapping[str, Any]], columns: Columns, *, empty: str) -> None:
    """Print rows as a table; ``empty`` on stderr when there are none."""
    if not rows:
        print(empty, file=sys.stderr)
        return
    cells = [[_text(row.get(field)) for _, field in columns] for row in rows]
    headings = [heading for heading, _ in columns]
    numeric = [_is_numeric([line[i] for line in cells]) for i in range(len(columns))]
    if sys.stdout.isatty():
        _print_rich(headings, cells, numeric)
    else:
        _print_plain(headings, cells, numeric)


def _print_rich(headings: list[str], cells: list[list[str]], numeric: list[bool]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading, is_numeric in zip(headings, numeric, strict=True):
        table.add_column(heading, justify="right" if is_numeric else "left", overflow="fold")
    for line in cells:
        table.add_row(*(escape(cell) for cell in line))
    Console().print(table)


def _print_plain(headings: list[str], cells: list[list[str]], numeric: list[bool]) -> None:
    widths = [max(len(line[i]) for line in [headings, *cells]) for i in range(len(headings))]
    for line in [headings, *cells]:
        padded = [
            cell.rjust(width) if is_numeric else cell.ljust(width)
            for cell, width, is_numeric in zip(line, widths, numeric, strict=True)
        ]
        print("  ".join(padded).rstrip())


def _text(value: Any) -> str:
    """Write one cell: not known is "-", never 0; control characters cannot reach the terminal."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value) or "none"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value))


def _is_numeric(column: list[str]) -> bool:
    return all(cell == "-" or cell.replace(".", "", 1).lstrip("-").isdigit() for cell in column)
