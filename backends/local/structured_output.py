"""The form that a request wants its text to have: OpenAI's field and vLLM's, to one JSON Schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from backends.local.errors import ApiError, UnsupportedError
from backends.local.json_schema_subset import UnsupportedSchemaError, check_schema
from backends.local.request_schema import GenerationRequest

_ANY_OBJECT = {"type": "object"}
# vLLM's names of constraints that are no JSON Schema; unlike an unknown field they must not be ignored.
_UNSUPPORTED = (
    *("guided_regex", "guided_choice", "guided_grammar", "guided_whitespace_pattern"),
    *("structural_tag", "allowed_token_ids", "bad_words"),
)
_NO_CONSTRAINT = "disable_fallback"  # a member of structured_outputs for vLLM's own backends


@dataclass(frozen=True)
class WantedForm:
    """A schema that the text must satisfy."""

    json_schema: str
    cost_ms: int  # processor time that compiling it probably takes
    member: str  # of the body, which asks for it


def find_wanted_form(request: GenerationRequest) -> WantedForm | None:
    """Return the form that is asked for, None for free text. Raises :class:`ApiError` 400."""
    for member in _UNSUPPORTED:
        if getattr(request, member) is not None:
            raise UnsupportedError(member, f"{member}; use response_format")
    schemas = [*_of_response_format(request), *_of_structured_outputs(request)]
    if request.guided_json is not None:
        schemas.append(("guided_json", _as_schema(request.guided_json, "guided_json")))
    if not schemas:
        return None
    if len(schemas) > 1:
        members = " and ".join(member for member, _ in schemas)
        raise ApiError(400, f"Only one of {members} can be used.", param=schemas[1][0])
    member, schema = schemas[0]
    try:
        return WantedForm(json.dumps(schema), check_schema(schema), member)
    except UnsupportedSchemaError as error:
        raise ApiError(400, f"Grammar error: {error}", param=member) from error
    except RecursionError as error:  # in what the check ignores, such as a default
        problem = "Grammar error: the schema is nested too deep"
        raise ApiError(400, problem, param=member) from error


def _of_response_format(request: GenerationRequest) -> list[tuple[str, dict[str, Any]]]:
    wanted = request.response_format
    if wanted is None or wanted.type == "text":
        return []
    if wanted.type == "json_object":
        return [("response_format", _ANY_OBJECT)]
    schema = wanted.json_schema.json_schema if wanted.json_schema else None
    if schema is None:
        problem = "response_format of type json_schema needs a json_schema with a schema."
        raise ApiError(400, problem, param="response_format")
    return [("response_format", schema)]


def _of_structured_outputs(request: GenerationRequest) -> list[tuple[str, dict[str, Any]]]:
    if request.structured_outputs is None:
        return []
    schemas: list[tuple[str, dict[str, Any]]] = []
    for name, value in request.structured_outputs.items():
        member = f"structured_outputs.{name}"
        if value is None or value is False or name == _NO_CONSTRAINT:
            continue
        if name == "json":
            schemas.append((member, _as_schema(value, member)))
        elif name == "json_object" and value is True:
            schemas.append((member, _ANY_OBJECT))
        else:
            raise UnsupportedError(member, f"{member}; use response_format")
    if not schemas:
        problem = "structured_outputs must have one constraint, none is given."
        raise ApiError(400, problem, param="structured_outputs")
    return schemas


def _as_schema(value: object, member: str) -> dict[str, Any]:
    """Return a schema that may be given as an object or as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ApiError(400, f"{member} is not valid JSON.", param=member) from error
    if not isinstance(value, dict):
        raise ApiError(400, f"{member} must be a JSON Schema, an object.", param=member)
    return value
