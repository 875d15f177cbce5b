"""The repository's own files, as the architecture tests look at them."""

from __future__ import annotations

import ast
import functools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from gateway.cli.main import make_app

ROOT = Path(__file__).parents[2]
PRODUCT = ("gateway", "billing", "routing", "backends", "admin_ui", "migrations")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def python_files(*folders: str) -> tuple[Path, ...]:
    """Return the modules below ``folders``, which must hold some."""
    found = tuple(sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")))
    assert found, f"no Python files below {folders}"
    return found


@functools.cache
def packages(*folders: str) -> tuple[Path, ...]:
    """Return the package directories below ``folders``."""
    return tuple(path.parent for path in python_files(*folders) if path.name == "__init__.py")


@functools.cache
def tracked_files() -> tuple[Path, ...]:
    """Return what git tracks or would track; skips the test where there is no git."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: what is tracked cannot be told")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    paths = {ROOT / name for name in listed.decode().split("\0") if name}
    return tuple(sorted(path for path in paths if path.is_file()))


@functools.cache
def parse(path: Path) -> ast.Module:
    """Return the module's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@functools.cache
def whole_command() -> Any:
    """Return the ``forebay`` command with all its commands; reading them takes half a second."""
    return typer.main.get_command(make_app())


def functions(source: ast.Module) -> Iterator[FunctionNode]:
    """Yield every function and method of a module."""
    for node in ast.walk(source):
        if isinstance(node, FunctionNode):
            yield node


def relative(path: Path) -> str:
    """Return the path as people write it, from the repository's root."""
    return path.relative_to(ROOT).as_posix()
