"""One word, one meaning: no module or class is named after being anything at all."""

from __future__ import annotations

import re

from tests.architecture.tree import PRODUCT, ROOT, python_files, relative

BANNED = frozenset(
    ("util", "utils", "helper", "helpers", "common", "info", "manager", "handler", "misc", "stuff")
)
_CLASS = re.compile(r"^\s*class (\w+)", re.MULTILINE)
_CLASS_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def banned_words(name: str) -> set[str]:
    """Return the banned words in a module's or class's name."""
    words = {word.lower() for part in name.split("_") for word in _CLASS_WORDS.findall(part)}
    return words & BANNED


def test_modules_and_packages_say_what_they_do() -> None:
    named = [
        relative(path)
        for path in python_files(*PRODUCT, "benchmarks", "deploy", "tests")
        if any(banned_words(part) for part in path.relative_to(ROOT).with_suffix("").parts)
    ]
    assert named == []


def test_classes_say_what_they_are() -> None:
    named = [
        f"{relative(path)}: {name}"
        for path in python_files(*PRODUCT, "benchmarks")
        for name in _CLASS.findall(path.read_text(encoding="utf-8"))
        if banned_words(name)
    ]
    assert named == []


def test_the_check_sees_banned_words() -> None:
    assert _CLASS.findall("class A:\n    class B(C):\n        x = 'no class'\n") == ["A", "B"]
    assert banned_words("string_utils") == {"utils"}
    assert banned_words("RequestHandler") == {"handler"}
    assert banned_words("HTTPManager") == {"manager"}
    assert banned_words("information") == set()
