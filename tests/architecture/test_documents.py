"""Documents do not drift: what they name exists, and what must be named in them is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import Settings
from tests.architecture.tree import (
    PRODUCT,
    ROOT,
    parse,
    python_files,
    relative,
    tracked_files,
    whole_command,
)

DOCS = ROOT / "docs"
_LINK = re.compile(r"\]\(([^)#\s]+)")
_FILE = re.compile(r"`([\w.-]+(?:/[\w.*-]+)*\.(?:py|md))`")
_CODE = re.compile(r"`([^`\n]+)`")
_IDENTIFIER = re.compile(r"_?[A-Za-z]\w*(?:\.\w+)?")


def markdown_files() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".md"]


def error_codes(source: ast.Module) -> Iterator[str]:
    """Yield each ``code`` that a client or a record can be given by this module."""
    values: list[ast.expr] = []
    for node in ast.walk(source):
        if isinstance(node, ast.keyword) and node.arg in {"code", "error_code"}:
            values.append(node.value)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {getattr(target, "id", getattr(target, "attr", "")) for target in targets}
            if names & {"default_code", "error_code"}:
                values.append(node.value)
    for value in values:
        # A choice between two, or a fallback: the texts are leaves of the same expression.
        for leaf in (value, *getattr(value, "values", ()), *_branches(value)):
            if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str):
                yield leaf.value


def _branches(value: ast.expr) -> tuple[ast.expr, ...]:
    return (value.body, value.orelse) if isinstance(value, ast.IfExp) else ()


def test_every_error_code_is_documented() -> None:
    modules = (*python_files("gateway/dataplane"), ROOT / "gateway" / "errors.py")
    modules += (ROOT / "billing" / "usage" / "recover.py",)
    codes = {code for path in modules for code in error_codes(parse(path))}
    assert len(codes) > 30
    documented = set(_CODE.findall((DOCS / "errors.md").read_text(encoding="utf-8")))
    assert codes - documented == set()


def test_every_setting_is_documented() -> None:
    text = (DOCS / "operations.md").read_text(encoding="utf-8")
    table = set(re.findall(r"`(FOREBAY_[A-Z_]+)`", text))
    settings = {f"FOREBAY_{name.upper()}" for name in Settings.model_fields}
    assert settings - table == set()
    assert table - settings == {"FOREBAY_READY_FILE"}  # an option of one command


def test_every_decision_is_in_the_index() -> None:
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    notes = sorted(path.name for path in (DOCS / "decisions").glob("[0-9]*.md"))
    assert re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", index) == notes
    assert [name[:4] for name in notes] == [f"{n:04d}" for n in range(1, len(notes) + 1)]
    for name in notes:
        text = (DOCS / "decisions" / name).read_text(encoding="utf-8")
        for section in ("## Context", "## Decision", "## Consequences"):
            assert section in text, f"{name} has no {section}"


def test_links_lead_somewhere() -> None:
    broken = [
        f"{relative(path)}: {target}"
        for path in markdown_files()
        for target in _LINK.findall(path.read_text(encoding="utf-8"))
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert broken == []


def named_files(text: str) -> list[str]:
    return [name for name in _FILE.findall(text) if "*" not in name and "NNNN" not in name]


def test_files_that_documents_name_exist() -> None:
    """A path is from the root or, in a package's README, from the package; a name is somewhere."""
    names = {path.name for path in tracked_files()}
    missing = [
        f"{relative(path)}: {name}"
        for path in markdown_files()
        for name in named_files(path.read_text(encoding="utf-8"))
        if not (ROOT / name).exists()
        and not (path.parent / name).exists()
        and ("/" in name or name not in names)
    ]
    assert missing == []


def test_the_life_of_a_request_names_what_is_in_the_code() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in python_files(*PRODUCT))
    words = set(re.findall(r"\w+", source))
    text = (DOCS / "life-of-a-request.md").read_text(encoding="utf-8")
    quoted = {found for found in _CODE.findall(text) if _IDENTIFIER.fullmatch(found)}
    assert len(quoted) > 40
    unknown = {name for name in quoted if not set(name.split(".")) <= words}
    assert {name for name in unknown if not name.startswith("FOREBAY_")} == set()


def documented_commands(text: str) -> set[tuple[str, ...]]:
    """Return the words and options of each ``forebay …`` that stands as code."""
    blocks = re.findall(r"^ {4}(forebay [^\n]*)$", text, flags=re.MULTILINE)
    spans = [found for found in _CODE.findall(text) if found.startswith("forebay ")]
    return {tuple(command.split()[1:]) for command in (*blocks, *spans)}


def find_fault(words: tuple[str, ...]) -> str | None:
    """Follow the words through the command tree; return what does not exist there."""
    command: Any = whole_command()
    for word in words:
        if (subcommands := getattr(command, "commands", None)) is not None:
            if word not in subcommands:
                return word
            command = subcommands[word]
        elif word.startswith("--"):
            options = {
                name for param in command.params for name in (*param.opts, *param.secondary_opts)
            }
            if word.partition("=")[0] not in options:
                return word
    return None


@pytest.mark.parametrize("path", markdown_files(), ids=relative)
def test_commands_that_documents_name_exist(path: Path) -> None:
    commands = documented_commands(path.read_text(encoding="utf-8"))
    faults = {" ".join(words): fault for words in commands if (fault := find_fault(words))}
    assert faults == {}


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.findall(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)
    targets = {target for line in phony for target in line.split()}
    helped = set(re.findall(r"^([a-z-]+):[^#\n]*## \S", makefile, flags=re.MULTILINE))
    assert helped == targets
    assert {"up", "test", "check"} <= targets


def test_the_checks_see_what_they_look_for() -> None:
    source = ast.parse('f(code="a" if x else "b")\nself.error_code = "c"\ng(code=code or "d")')
    assert set(error_codes(source)) == {"a", "b", "c", "d"}
    assert named_files("`a/b.py`, `c.md`, `d/*.py`") == ["a/b.py", "c.md"]
    assert find_fault(("keys", "create", "NAME", "--project", "x")) is None
    assert find_fault(("keys", "make")) == "make"
    assert find_fault(("usage", "--sideways")) == "--sideways"
