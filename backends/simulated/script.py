"""What a simulated answer says: that it is simulated. Pure.

Plain text repeats one sentence. Where a JSON schema is asked for, the answer is the least document
that the schema's types, ``required``, ``enum``, ``const`` and lower bounds ask for; other rules are
not looked at.
"""

from __future__ import annotations

import json
from typing import Any

_FIRST = "Simulated"  # even an answer of one token says it
_WORDS = (" text", ":", " no", " model", " made", " it", ".", " Simulated")
_PIECE = 4  # characters of JSON in a token
_MAX_DEPTH = 16
_MAX_LENGTH = 4096  # of one text

Schema = dict[str, Any]


def plain_token(number: int) -> str:
    """Return the text of an answer's ``number``-th token, from 1: the same in each answer."""
    return _FIRST if number == 1 else _WORDS[(number - 2) % len(_WORDS)]


def split_tokens(text: str) -> tuple[str, ...]:
    """Return ``text`` in pieces of a token each."""
    return tuple(text[at : at + _PIECE] for at in range(0, len(text), _PIECE))


def json_text(schema: Schema | None) -> str:
    """Return a document for ``schema``; without one an object that says that it is simulated.

    Raises ``ValueError``, ``TypeError``, ``AttributeError``, ``LookupError`` for what is no schema.
    """
    return json.dumps({"simulated": True} if schema is None else _instance(schema, 0))


def _instance(schema: Any, depth: int) -> Any:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return "simulated"
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf", "allOf"):
        if schema.get(choice):
            return _instance(schema[choice][0], depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = kind[0] if kind else "null"
    return _of_kind(kind, schema, depth)


def _of_kind(kind: str, schema: Schema, depth: int) -> Any:
    if kind == "object":
        properties = schema.get("properties") or {}
        names = schema.get("required") or []
        return {name: _instance(properties.get(name, {}), depth + 1) for name in names}
    if kind == "array":
        count = min(int(schema.get("minItems") or 0), _MAX_DEPTH)
        return [_instance(schema.get("items", {}), depth + 1) for _ in range(count)]
    if kind in {"integer", "number"}:
        return schema.get("minimum", 0)
    if kind in {"boolean", "null"}:
        return True if kind == "boolean" else None
    text = "simulated".ljust(min(int(schema.get("minLength") or 0), _MAX_LENGTH), ".")
    return text[: schema.get("maxLength") or len(text)]
