"""Which JSON Schemas are let through to the engine.

The first of two defences: a schema that OpenVINO's grammar compiler refuses, or on which it works for
minutes, would be everybody's loss. So only keywords pass that are known to compile, with values of the
right form, and what makes a grammar large is bounded. What gets past this is tried before it is used
(:mod:`backends.local.engine.grammar_trial`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from backends.local.grammar_cost import MAX_COST_MS, GrammarCost

MAX_DEPTH = 16
MAX_NODES = 250  # schemas in the schema
MAX_TEXT = 20_000  # characters of names and of the values of enum and const, 40 B kept for each
MAX_VALUES = 2_000  # in enum and const, what they contain counted

_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
_IGNORED = frozenset({"title", "description", "default", "examples", "$schema", "$id"})
_COUNTS = {"minLength": "maxLength", "minItems": "maxItems"}
_MAX_COUNT = 1000
_MAX_DIGITS = 18  # the compiler reads whole numbers as 64 bits
_UNESCAPED = re.compile(r'["\\\x00-\x1f]')  # the compiler puts names into its grammar as they are


class UnsupportedSchemaError(Exception):
    """The schema is malformed, or uses what is not let through; the message says what."""


def check_schema(schema: dict[str, Any]) -> int:
    """Return what compiling ``schema`` probably takes, in milliseconds of processor time.

    Raises :class:`UnsupportedSchemaError` unless it is of the kind that compiles, and soon.
    """
    checker = _Checker()
    checker.check(schema, "#", 0)
    return checker.cost.milliseconds


class _Checker:
    def __init__(self) -> None:
        self._nodes = 0
        self._text = 0
        self._values = 0
        self.cost = GrammarCost()

    def check(self, schema: object, path: str, depth: int, *, is_alternative: bool = False) -> None:
        if not isinstance(schema, dict):
            raise UnsupportedSchemaError(f"{path}: a schema must be an object")
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            raise UnsupportedSchemaError(f"{path}: the schema is too large")
        self.cost.add_node()
        for keyword, value in schema.items():
            self._check_keyword(keyword, value, f"{path}/{keyword}", depth)
        for low, high in _COUNTS.items():
            if schema.get(low, 0) > schema.get(high, _MAX_COUNT):
                raise UnsupportedSchemaError(f"{path}: {low} is greater than {high}")
        if schema.get("minItems", 0) > 0 and "items" not in schema:
            raise UnsupportedSchemaError(f"{path}: minItems needs items")
        if not is_alternative:  # else they are counted with the others that may come there
            self.cost.add_values(_values_of(schema))
        self._add_cost(schema, path)

    def _add_cost(self, schema: dict[str, Any], path: str) -> None:
        self.cost.add_string(schema.get("minLength", 0), schema.get("maxLength"))
        self.cost.add_array(schema.get("minItems", 0), schema.get("maxItems"))
        properties, required = schema.get("properties", {}), set(schema.get("required", ()))
        optional = properties.keys() - required
        repeated = optional if len(optional) < len(properties) else ()
        values = [value for name in repeated for value in _values_of(properties[name])]
        self.cost.add_optional_properties(optional, values)
        if self.cost.milliseconds > MAX_COST_MS:
            raise UnsupportedSchemaError(
                f"{path}: with it the schema takes too long to compile. What costs most: strings of "
                "bounded length (about 100 characters in all, equal bounds counted once), many "
                "arrays of bounded length, many optional properties, long names and values"
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
        self.cost.add_name(name)

    def _check_alternatives(self, value: object, path: str, depth: int) -> None:
        if not isinstance(value, list) or not value:
            raise UnsupportedSchemaError(f"{path}: must be a list of schemas, not empty")
        for number, schema in enumerate(value):
            self.check(schema, f"{path}/{number}", depth + 1, is_alternative=True)

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


def _values_of(schema: dict[str, Any]) -> Iterator[str]:
    """Yield, in JSON, the values of enum and const that may stand where the schema does."""
    values = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]
    for value in values:
        yield json.dumps(value, ensure_ascii=False)
    for alternative in schema.get("anyOf", ()):
        yield from _values_of(alternative)


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
