"""Which JSON Schemas are let through to the engine.

A schema that OpenVINO's grammar compiler refuses makes its pipeline fail in the middle of a step and
leaves it unusable for everyone (seen with openvino-genai 2026.4.1), and there is no way to try a
schema beforehand. So only keywords that are known to compile pass, with values of the right form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MAX_DEPTH = 16
MAX_NODES = 500

_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
_IGNORED = frozenset({"const", "title", "description", "default", "examples", "$schema", "$id"})
_COUNTS = {"minLength": "maxLength", "minItems": "maxItems"}
_MAX_COUNT = 1000  # a counted repetition is unrolled by the compiler


class UnsupportedSchemaError(Exception):
    """The schema is malformed, or uses what is not let through; the message says what."""


def check_schema(schema: dict[str, Any]) -> None:
    """Raises :class:`UnsupportedSchemaError` unless the engine is sure to compile ``schema``."""
    _Checker().check(schema, "#", 0)


class _Checker:
    def __init__(self) -> None:
        self._nodes = 0

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

    def _check_keyword(self, keyword: str, value: Any, path: str, depth: int) -> None:
        if keyword in _IGNORED:
            return
        if keyword in _COUNTS or keyword in _COUNTS.values():
            _check_count(value, path)
        elif keyword in _FLAT_CHECKS:
            _FLAT_CHECKS[keyword](value, path)
        elif keyword == "properties":
            self._check_properties(value, path, depth)
        elif keyword == "anyOf":
            self._check_alternatives(value, path, depth)
        elif keyword == "items":
            self.check(value, path, depth + 1)
        elif keyword == "additionalProperties":
            if not isinstance(value, bool):
                self.check(value, path, depth + 1)
        else:
            raise UnsupportedSchemaError(f"{path}: not supported by the local engine")

    def _check_properties(self, value: object, path: str, depth: int) -> None:
        if not isinstance(value, dict):
            raise UnsupportedSchemaError(f"{path}: must be an object")
        for name, schema in value.items():
            self.check(schema, f"{path}/{name}", depth + 1)

    def _check_alternatives(self, value: object, path: str, depth: int) -> None:
        if not isinstance(value, list) or not value:
            raise UnsupportedSchemaError(f"{path}: must be a list of schemas, not empty")
        for number, schema in enumerate(value):
            self.check(schema, f"{path}/{number}", depth + 1)


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


def _check_required(value: object, path: str) -> None:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise UnsupportedSchemaError(f"{path}: must be a list of names")


def _check_enum(value: object, path: str) -> None:
    if not isinstance(value, list) or not value:
        raise UnsupportedSchemaError(f"{path}: must be a list of values, not empty")


_FLAT_CHECKS: dict[str, Callable[[object, str], None]] = {
    "type": _check_type,
    "required": _check_required,
    "enum": _check_enum,
}
