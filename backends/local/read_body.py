"""The request's bytes to a checked record, with vLLM's wording for what is wrong in them."""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from backends.local.errors import ApiError

BodyT = TypeVar("BodyT", bound=BaseModel)

_SHOWN_INPUT_LENGTH = 100
_MAX_DIGITS = 1000


async def read_body(request: Request, body_type: type[BodyT]) -> BodyT:
    """Return the parsed body. Raises :class:`ApiError` 400."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        _refuse(["Unsupported Media Type: Only 'application/json' is allowed"], None)
    raw = await request.body()
    return parse_body(raw, body_type)


def parse_body(raw: bytes, body_type: type[BodyT]) -> BodyT:
    """Return the record in ``raw``. Raises :class:`ApiError` 400."""
    if not raw.strip():
        detail = {"type": "missing", "loc": "body", "msg": "Field required: the body is empty"}
        _refuse([str(detail)], "body")
    try:
        document = json.loads(raw, parse_constant=_refuse_constant, parse_int=_parse_integer)
        if b"\\u" in raw:  # half of an escaped surrogate pair is no character
            json.dumps(document, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        where = f"body.{error.pos}"
        detail = {"type": "json_invalid", "loc": where, "msg": "JSON decode error"}
        _refuse([str(detail | {"ctx": {"error": error.msg}})], where)
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        detail = {"type": "json_invalid", "loc": "body", "msg": "JSON decode error"}
        _refuse([str(detail | {"ctx": {"error": str(error)}})], "body")
    try:
        return body_type.model_validate(document)
    except ValidationError as error:
        details = [_detail(entry) for entry in error.errors(include_url=False)]
        _refuse([str(detail) for detail in details], details[0]["loc"])


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _parse_integer(digits: str) -> int:
    """Python's own refusal would tell clients how to configure Python."""
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a whole number of more than {_MAX_DIGITS} digits")
    return int(digits)


def _detail(entry: Any) -> dict[str, str]:
    # pydantic names the tried member of a union in the path; clients know fields and positions only
    path = [part for part in entry["loc"] if isinstance(part, int) or _is_field(part)]
    return {
        "type": entry["type"],
        "loc": ".".join(["body", *map(str, path)]),
        "msg": entry["msg"],
        "input": _shown(entry["input"]),
    }


def _is_field(part: str) -> bool:
    return part.isidentifier() and part not in {"str", "int", "float", "bool"}


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return f"<{type(value).__name__} of {len(value)} items>"
    return str(value)[:_SHOWN_INPUT_LENGTH]


def _refuse(problems: list[str], param: str | None) -> NoReturn:
    count = "1 validation error" if len(problems) == 1 else f"{len(problems)} validation errors"
    message = "\n  ".join([f"{count}:", *problems])
    raise ApiError(400, message, kind="Bad Request", param=param)
