"""Which JSON Schemas are let through to the engine.

The first of two defences: a schema that OpenVINO's grammar compiler refuses, or on which it works for
minutes, would be everybody's loss. So only keywords pass that are known to compile, with values of the
right form, and what makes a grammar large is bounded. What gets past this is tried before it is used
(:mod:`backends.local.engine.grammar_trial`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, ClassVar

MAX_DEPTH = 16
MAX_NODES = 250  # schemas in the schema; 200 optional properties take 1 s to compile, 400 take 4 s
MAX_TEXT = 20_000  # characters of names and of the values of enum and const, 40 B kept for each
MAX_VALUES = 2_000  # in enum and const, what they contain counted
# Each place of a string with minLength or maxLength is a state of the grammar, 30 ms to compile; from
# about 300 on the compiler takes another way, in constant time. Equal bounds are compiled once.
MAX_STRING_PLACES = 300

_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
_IGNORED = frozenset({"title", "description", "default", "examples", "$schema", "$id"})
_COUNTS = {"minLength": "maxLength", "minItems": "maxItems"}
_MAX_COUNT = 1000
_MAX_DIGITS = 18  # the compiler reads whole numbers as 64 bits
_UNESCAPED = re.compile(r'["\\\x00-\x1f]')  # the compiler puts names into its grammar as they are


class UnsupportedSchemaError(Exception):
    """The schema is malformed, or uses what is not let through; the message says what."""


def check_schema(schema: dict[str, Any]) -> None:
    """Raises :class:`UnsupportedSchemaError` unless ``schema`` is of the kind that compiles."""
    _Checker().check(schema, "#", 0)


class _Checker:
    def __init__(self) -> None:
        self._nodes = 0
        self._text = 0
        self._values = 0
        self._string_bounds: set[tuple[int, int]] = set()

    def check(self, schema: object, path: str, depth: int) -> None:
        if not isinstance(schema, dict):
            raise UnsupportedSchemaError(f"{path}: a schema must be an object")
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            raise UnsupportedSchemaError(f"{path}: the schema is too large")
        for keyword, value in schema.items():
            self._check_keyword(keyword, value, f"{path}/{keyword}", depth)
        for low, high in _COUNTS.items():
            if schema.get(low, 0) > schema.get(high, _MAX_COUNT):
                raise UnsupportedSchemaError(f"{path}: {low} is greater than {high}")
        if schema.get("minItems", 0) > 0 and "items" not in schema:
            raise UnsupportedSchemaError(f"{path}: minItems needs items")
        self._count_string_places(schema, path)

    def _count_string_places(self, schema: dict[str, Any], path: str) -> None:
        low, high = schema.get("minLength", 0), schema.get("maxLength", 0)
        self._string_bounds.add((low, high))
        places = sum(min(max(bounds), MAX_STRING_PLACES) for bounds in self._string_bounds)
        if places > MAX_STRING_PLACES:
            raise UnsupportedSchemaError(
                f"{path}: the strings that have a minLength or maxLength are too long together: "
                f"at most {MAX_STRING_PLACES} characters, or a single pair of bounds"
            )

    def _check_keyword(self, keyword: str, value: Any, path: str, depth: int) -> None:
        if keyword in _IGNORED:
            if not isinstance(value, str):  # the compiler reads the number that it ignores, too
                self._check_value(value, path, depth)
            return
        if keyword in _COUNTS or keyword in _COUNTS.values():
            _check_count(value, path)
        elif keyword == "type":
            _check_type(value, path)
        elif keyword in self._KEYWORDS:
            self._KEYWORDS[keyword](self, value, path, depth)
        else:
            raise UnsupportedSchemaError(f"{path}: not supported by the local engine")

    def _check_properties(self, value: object, path: str, depth: int) -> None:
        if not isinstance(value, dict):
            raise UnsupportedSchemaError(f"{path}: must be an object")
        for name, schema in value.items():
            self._check_name(name, path)
            self.check(schema, f"{path}/{name}", depth + 1)

    def _check_required(self, value: object, path: str, _depth: int) -> None:
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise UnsupportedSchemaError(f"{path}: must be a list of names")
        for name in value:
            self._check_name(name, path)

    def _check_name(self, name: str, path: str) -> None:
        if _UNESCAPED.search(name):
            problem = "a property's name must be without quotes, backslashes and control characters"
            raise UnsupportedSchemaError(f"{path}: {problem}")
        self._count_value(name, path)

    def _check_alternatives(self, value: object, path: str, depth: int) -> None:
        if not isinstance(value, list) or not value:
            raise UnsupportedSchemaError(f"{path}: must be a list of schemas, not empty")
        for number, schema in enumerate(value):
            self.check(schema, f"{path}/{number}", depth + 1)

    def _check_additional(self, value: object, path: str, depth: int) -> None:
        if not isinstance(value, bool):
            self.check(value, path, depth + 1)

    def _check_items(self, value: object, path: str, depth: int) -> None:
        self.check(value, path, depth + 1)

    def _check_enum(self, value: object, path: str, depth: int) -> None:
        if not isinstance(value, list) or not value:
            raise UnsupportedSchemaError(f"{path}: must be a list of values, not empty")
        self._check_value(value, path, depth)

    def _check_value(self, value: object, path: str, depth: int) -> None:
        """Check a value of enum, const or what is ignored, and what it contains."""
        if depth > MAX_DEPTH:
            raise UnsupportedSchemaError(f"{path}: the schema is too large")
        if isinstance(value, float) and not math.isfinite(value):
            raise UnsupportedSchemaError(f"{path}: the number is too large")
        if isinstance(value, int) and abs(value) >= 10**_MAX_DIGITS:
            raise UnsupportedSchemaError(f"{path}: the number has too many digits")
        self._count_value(value if isinstance(value, str) else "", path)
        if isinstance(value, dict):
            for name, member in value.items():
                self._count_value(name, path)
                self._check_value(member, path, depth + 1)
        elif isinstance(value, list):
            for member in value:
                self._check_value(member, path, depth + 1)

    def _count_value(self, text: str, path: str) -> None:
        self._values += 1
        self._text += len(text)
        if self._values > MAX_VALUES or self._text > MAX_TEXT:
            raise UnsupportedSchemaError(f"{path}: the schema's names and values are too large")

    _KEYWORDS: ClassVar[dict[str, Callable[[_Checker, Any, str, int], None]]] = {
        "properties": _check_properties,
        "required": _check_required,
        "anyOf": _check_alternatives,
        "items": _check_items,
        "additionalProperties": _check_additional,
        "enum": _check_enum,
        "const": _check_value,
    }


def _check_count(value: object, path: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_COUNT:
        raise UnsupportedSchemaError(f"{path}: must be within 0..{_MAX_COUNT}")


def _check_type(value: object, path: str) -> None:
    names = value if isinstance(value, list) else [value]
    if not names:
        raise UnsupportedSchemaError(f"{path}: names no type")
    for name in names:
        if not isinstance(name, str) or name not in _TYPES:
            raise UnsupportedSchemaError(f"{path}: Invalid type: {name}")
