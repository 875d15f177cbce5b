"""What may be done in named files only: commit, read the clock, leave something unfinished."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.architecture.tree import PRODUCT, parse, python_files, relative

# One request or task, one transaction: these open and commit it for everybody else.
COMMITTING = frozenset({"gateway/controlplane/database.py", "migrations/env.py"})
# Everyone else is handed a clock, so that tests decide what time it is.
TELLING_TIME = frozenset({"billing/clock.py", "admin_ui/app.py"})
_PRESENT = ("now", "utcnow", "today")
_UNFINISHED = re.compile(r"#.*\b(TODO|FIXME|HACK)\b|#\s*XXX\b")


def find_calls(source: ast.Module, name: str) -> list[int]:
    """Return the lines on which something's method ``name`` is called."""
    return [
        node.lineno
        for node in ast.walk(source)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == name
    ]


def find_clock_reads(source: ast.Module) -> list[int]:
    """Return the lines that ask ``datetime`` or ``date`` for the present."""
    return sorted(
        node.lineno
        for node in ast.walk(source)
        if isinstance(node, ast.Attribute)
        and node.attr in _PRESENT
        and isinstance(node.value, ast.Name)
        and node.value.id in {"datetime", "date"}
    )


def files_with(find: object, words: tuple[str, ...], *arguments: str) -> set[str]:
    """Return the files in which ``find`` finds something; one of the words stands in them."""
    assert callable(find)
    return {
        relative(path)
        for path in python_files(*PRODUCT)
        if any(word in path.read_text(encoding="utf-8") for word in words)
        and find(parse(path), *arguments)
    }


def test_only_edge_files_commit() -> None:
    assert files_with(find_calls, ("commit",), "commit") == COMMITTING


def test_only_the_clock_tells_the_time() -> None:
    assert files_with(find_clock_reads, ("datetime.", "date.")) == TELLING_TIME


def find_unfinished(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if _UNFINISHED.search(line)]


def test_nothing_is_left_to_do() -> None:
    left = {
        relative(path): find_unfinished(path)
        for path in python_files(*PRODUCT, "benchmarks", "deploy")
        if find_unfinished(path)
    }
    assert left == {}


def test_the_checks_see_what_they_look_for() -> None:
    source = ast.parse("session.commit()\nat = datetime.now(UTC)\nclock = datetime.now\n")
    assert find_calls(source, "commit") == [1]
    assert find_clock_reads(source) == [2, 3]
    assert _UNFINISHED.search("x = 1  # " + "TODO" + ": later")
