"""What ``forebay bench`` reads and writes: lengths, reports, plots; each file whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.cli.costing_files import read_text
from gateway.cli.errors import CliError

if TYPE_CHECKING:
    from backends.sweep.lengths import Lengths

REPORT, PLOT, CAPACITY = "report.json", "plot.svg", "capacity.json"


@dataclass(frozen=True, slots=True)
class LedgerLengths:
    """Which of the ledger's requests tell how long requests are."""

    from_: str | None
    to: str | None
    route: str | None
    deployment: str | None
    project: str | None
    state_dir: str | None

    @property
    def is_chosen(self) -> bool:
        """Whether anything but the usual is asked for."""
        return any((self.from_, self.to, self.route, self.deployment, self.project))


def read_lengths(path: Path) -> Lengths:
    """Return the distribution in a file: CSV with a heading, JSON, or JSON lines.

    Raises :class:`CliError`, and SweepError for lengths below 1.
    """
    from billing.costing.errors import CostingError
    from billing.costing.read_rows import find_count, get_count, read_rows

    text = read_text(path)
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and all(line.lstrip().startswith("{") for line in lines):
        text = "[" + ",".join(lines) + "]"
    try:
        rows = [
            (
                get_count(row, "input_tokens", "prompt_tokens", "input"),
                get_count(row, "output_tokens", "completion_tokens", "output"),
                find_count(row, "requests"),
            )
            for row in read_rows(text)
        ]
    except CostingError as error:
        raise CliError(f"{path}: {error}.") from error
    return make_lengths(rows, str(path))


def ask_lengths(source: LedgerLengths) -> dict[str, Any]:
    """Return the control API's answer: the distribution as a file that :func:`read_lengths` reads.

    Raises :class:`CliError`, of no request too.
    """
    from gateway.cli.control_client import ControlClient
    from gateway.cli.options import load, parse_time

    query = {
        "from": parse_time(source.from_, "--from"),
        "to": parse_time(source.to, "--to"),
        "project_id": source.project,
        "route": source.route,
        "deployment": source.deployment,
    }
    answer = ControlClient(load(source.state_dir)).get("/lengths", **query)
    if not answer["data"]:
        raise CliError(
            f"No request with token counts was completed from {answer['from']} to {answer['to']}."
        )
    found: dict[str, Any] = answer
    return found


def draw_lengths(source: LedgerLengths) -> Lengths:
    """Return the ledger's distribution. Raises :class:`CliError`."""
    rows = ask_lengths(source)["data"]
    return make_lengths(
        ((row["input_tokens"], row["output_tokens"], row["requests"]) for row in rows), "the ledger"
    )


def make_lengths(rows: Iterable[tuple[int, int, int | None]], source: str) -> Lengths:
    """Return a distribution of (input, output, requests). Raises :class:`CliError` of none."""
    from backends.sweep.lengths import Lengths, Pair

    pairs = [
        Pair(inputs, outputs, 1 if requests is None else requests)
        for inputs, outputs, requests in rows
    ]
    if not any(pair.requests for pair in pairs):
        raise CliError(f"{source}: no request with token counts.")
    return Lengths(pairs)


def read_report(path: Path) -> dict[str, Any]:
    """Return a sweep's report. Raises :class:`CliError`."""
    from backends.sweep.report import FORMAT

    try:
        content = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise CliError(f"{path} is no valid JSON.") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CliError(f"{path} is no report of `forebay bench sweep`.")
    return content


def make_directory(path: Path) -> None:
    """Make the directory, and see that it can be written to. Raises :class:`CliError`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(f"{path} cannot be made: {error.strerror}.") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise CliError(f"{path} cannot be written to.")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON. Raises :class:`CliError`."""
    write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Replace a file: who reads it sees the old one or the new one. Raises :class:`CliError`."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise CliError(f"{path} cannot be written: {error.strerror}.") from error
