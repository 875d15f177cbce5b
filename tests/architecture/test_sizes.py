"""Files are split by verb before they reach 300 lines; a function fits on a screen."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.architecture.tree import PRODUCT, ROOT, functions, parse, python_files, relative

FILE_LINES = 300
FUNCTION_LINES = 60
# Tests are lists of cases: length is no burden where nothing has to be kept in mind.
TEST_FILE_LINES = 450
TEST_FUNCTION_LINES = 80

# path: (its own limit, the reason)
LONG_FILES = {
    "migrations/versions/0002_billing.py": (
        310,
        "one migration, all of it SQL; never edited again",
    ),
}


def count_lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def find_long_functions(source: ast.Module, limit: int) -> list[tuple[str, int]]:
    lengths = [(node.name, (node.end_lineno or 0) - node.lineno + 1) for node in functions(source)]
    return [(name, lines) for name, lines in lengths if lines > limit]


def test_files_are_short() -> None:
    too_long = {
        relative(path): count_lines(path)
        for path in python_files(*PRODUCT, "benchmarks", "deploy")
        if count_lines(path) > LONG_FILES.get(relative(path), (FILE_LINES, ""))[0]
    }
    assert too_long == {}


def test_test_files_are_not_endless() -> None:
    too_long = {
        relative(path): count_lines(path)
        for path in python_files("tests")
        if count_lines(path) > TEST_FILE_LINES
    }
    assert too_long == {}


def test_named_exceptions_are_still_needed() -> None:
    needless = [name for name in LONG_FILES if count_lines(ROOT / name) <= FILE_LINES]
    assert needless == []


def test_functions_are_short() -> None:
    too_long = {
        f"{relative(path)}:{name}": lines
        for path in python_files(*PRODUCT, "benchmarks", "deploy")
        for name, lines in find_long_functions(parse(path), FUNCTION_LINES)
    }
    assert too_long == {}


def test_test_functions_are_not_endless() -> None:
    too_long = {
        f"{relative(path)}:{name}": lines
        for path in python_files("tests")
        for name, lines in find_long_functions(parse(path), TEST_FUNCTION_LINES)
    }
    assert too_long == {}


def test_the_check_sees_long_functions() -> None:
    body = "\n".join(f"    a{number} = {number}" for number in range(FUNCTION_LINES))
    source = ast.parse(f"async def long():\n{body}\n\ndef short():\n    return 1\n")
    assert find_long_functions(source, FUNCTION_LINES) == [("long", FUNCTION_LINES + 1)]
