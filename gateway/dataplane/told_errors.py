"""How engines tell errors: OpenAI's shape, vLLM's older one, FastAPI's; in refusals, answers and chunks.

An ``error`` is one where it is an object or a text with something in it. ``null``, ``false``, ``{}``
and ``""``, which some engines write into every answer, say that there is none.
"""

from __future__ import annotations

import contextlib

import msgspec

from gateway.openai_schema.replies import NULL, ErrorDetail, RepliedError

_TOLD = b'"error"'  # the value of ``object`` in vLLM's older shape, whose members are beside it

_decode_told = msgspec.json.Decoder(RepliedError).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_code = msgspec.json.Decoder(int | str).decode


def tells_error(data: bytes) -> bool:
    """Tell whether an engine's answer, or a chunk of one, is an error; not JSON is none."""
    try:
        told = _decode_told(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return bytes(told.object) == _TOLD or is_error(told.error)


def is_error(value: msgspec.Raw) -> bool:
    """Tell whether the value of a member ``error`` is one."""
    raw = bytes(value)
    if raw.startswith(b"{"):
        return bool(raw[1:-1].strip())
    return raw.startswith(b'"') and len(raw) > len('""')


def read_error_detail(data: bytes) -> ErrorDetail:
    """Return what ``data`` tells of an error, whatever its shape; empty if nothing."""
    try:
        told = _decode_told(data)
        if is_error(told.error):
            if bytes(told.error).startswith(b'"'):
                return ErrorDetail(message=_decode_text(told.error))
            return _read_members(told.error)
        if told.detail != NULL:
            return ErrorDetail(message=bytes(told.detail).decode("utf-8", "replace"))
        return _read_members(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ErrorDetail()


def _read_members(data: msgspec.Raw | bytes) -> ErrorDetail:
    """Return the members that are of their type; one that is not spoils none of the others."""
    members = _decode_members(data)
    detail = ErrorDetail()
    for name in ("message", "type", "param"):
        with contextlib.suppress(msgspec.DecodeError):
            setattr(detail, name, _decode_text(members.get(name, NULL)))
    with contextlib.suppress(msgspec.DecodeError):
        detail.code = _decode_code(members.get("code", NULL))
    return detail
