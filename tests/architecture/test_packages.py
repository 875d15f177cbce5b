"""Every package says what it owns; no package does work when it is imported."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.tree import PRODUCT, ROOT, packages, parse, relative

SECTIONS = ("Owns", "Does not own", "Invariants", "Start reading here")
# Described in their parent's README: one kind of file each, with nothing to add.
DESCRIBED_ABOVE = frozenset({"admin_ui/pages", "migrations/versions"})
DOCUMENTED = [
    path
    for path in (*packages(*PRODUCT, "benchmarks"), ROOT / "tests", ROOT / "deploy")
    if relative(path) not in DESCRIBED_ABOVE
]


def missing_sections(text: str) -> list[str]:
    """Return the sections that a README lacks; a heading or a bold word opens one."""
    lines = text.splitlines()
    return [
        section
        for section in SECTIONS
        if not any(line.startswith((f"## {section}", f"**{section}:**")) for line in lines)
    ]


def is_empty_or_docstring(module: ast.Module) -> bool:
    if len(module.body) > 1:
        return False
    return not module.body or ast.get_docstring(module) is not None


@pytest.mark.parametrize("package", DOCUMENTED, ids=relative)
def test_package_has_a_readme(package: Path) -> None:
    readme = package / "README.md"
    assert readme.is_file(), f"{relative(package)} has no README.md"
    assert missing_sections(readme.read_text(encoding="utf-8")) == []


def test_init_files_are_empty_or_a_docstring() -> None:
    busy = [
        relative(package)
        for package in packages(*PRODUCT, "benchmarks", "tests")
        if not is_empty_or_docstring(parse(package / "__init__.py"))
    ]
    assert busy == []


def test_the_checks_see_what_they_look_for() -> None:
    assert missing_sections("## Owns\n**Does not own:** x\n### Invariants\n") == [
        "Invariants",
        "Start reading here",
    ]
    assert is_empty_or_docstring(ast.parse('"""Only this."""'))
    assert not is_empty_or_docstring(ast.parse("import os"))
    assert not is_empty_or_docstring(ast.parse('"""This."""\nimport os'))
