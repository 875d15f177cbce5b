"""The line of a log that says why a process ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.up.log_tail import find_last_line

# As vLLM writes it at each start on a machine with few open files.
_WARNING = (
    "(APIServer pid=7) WARNING 11-30 01:23:30 [system_utils.py:255] Found ulimit of 20000. This can"
    " cause fd limit errors like `OSError: [Errno 24] Too many open files`."
)
_MARKERS = ("Error:", "ERROR")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([_WARNING, "INFO loading"], "INFO loading"),
        (["ValueError: no such model", _WARNING], "ValueError: no such model"),
        ([_WARNING], ""),
        (["pydantic.ValidationError:", "dtype is unknown", _WARNING], None),
    ],
)
def test_a_warning_that_quotes_an_error_is_passed_over(
    tmp_path: Path, lines: list[str], found: str | None
) -> None:
    log = tmp_path / "engine.log"
    log.write_text("\n".join(lines))
    expected = " ".join(lines[:2]) if found is None else found
    assert find_last_line(log, _MARKERS, passing_over=" WARNING ") == expected


def test_without_it_every_line_counts(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text(f"{_WARNING}\nINFO loading\n")
    assert find_last_line(log, _MARKERS) == _WARNING
    assert find_last_line(tmp_path / "none", _MARKERS) == ""


def test_what_an_earlier_run_said_is_not_told(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("EngineDeadError: it is dead\n")
    begin = log.stat().st_size
    assert find_last_line(log, _MARKERS, begin=begin) == ""
    with log.open("a") as file:
        file.write("INFO loading\n")
    assert find_last_line(log, _MARKERS, begin=begin) == "INFO loading"
    assert find_last_line(log, _MARKERS) == "EngineDeadError: it is dead"
