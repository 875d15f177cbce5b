"""Integers that were written as floats, ``100.0`` or ``1e2``: OpenAI's API and vLLM take them.

Only a body that was refused for one comes here, and only to be read: what the engine gets keeps the
client's own bytes.
"""

from __future__ import annotations

import re

import msgspec

_COUNTS = ("max_tokens", "max_completion_tokens", "n")
_TOKEN_IDS = ("prompt", "input")
_FLOAT = re.compile(rb"-?\d{1,20}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,5})?")
_FRACTION = re.compile(rb"\.0+(?=[\s,\]])")
_MOST = 1 << 63  # as in pydantic: above it a float is no count

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def find_integral(body: bytes) -> bytes | None:
    """Return ``body`` with the integers that we read written as such; None where none was a float."""
    try:
        members = _decode_members(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # it was refused before its end was read
    is_changed = False
    for names, rewrite in ((_COUNTS, _rewrite_count), (_TOKEN_IDS, _rewrite_ids)):
        for name in names:
            given = bytes(members.get(name, b""))
            written = rewrite(given)
            if written != given:
                members[name] = msgspec.Raw(written)
                is_changed = True
    return _encode(members) if is_changed else None


def _rewrite_count(given: bytes) -> bytes:
    if _FLOAT.fullmatch(given) is None:
        return given
    number = float(given)
    return b"%d" % int(number) if number.is_integer() and abs(number) < _MOST else given


def _rewrite_ids(given: bytes) -> bytes:
    if not given.startswith(b"[") or b'"' in given:  # a text may say 1.0
        return given
    return _FRACTION.sub(b"", given)
