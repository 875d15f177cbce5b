"""Where a request stands in its conversation, read from its body: for routes that choose among tiers.

Nothing here raises on a body that :mod:`gateway.dataplane.read_request` has parsed: what has another
form than we know has no text. Texts stay in the process and are never logged.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from routing.complexity.tier_policy import MAX_EARLIER_TEXTS, Turn

_ABSENT = msgspec.Raw(b"null")
_INSTRUCTIONS = ("system", "developer")
_HASHED_BYTES = 4096  # of each message, for what tells conversations apart
_TEXT_PARTS = (None, "text", "input_text")


class _Message(msgspec.Struct):
    role: str
    content: msgspec.Raw = _ABSENT


class _Body(msgspec.Struct):
    messages: list[_Message] | None = None
    prompt: msgspec.Raw = _ABSENT
    metadata: msgspec.Raw = _ABSENT


class _Part(msgspec.Struct):
    type: str | None = None
    text: str | None = None


_decode_body = msgspec.json.Decoder(_Body).decode
_decode_content = msgspec.json.Decoder(str | list[_Part]).decode
_decode_prompt = msgspec.json.Decoder(str | list[str]).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


class Conversation(msgspec.Struct):
    """What a body tells of its conversation."""

    turn: Turn
    beginning: bytes | None  # digest of all up to the first user message; None: there is none
    tier: str | None  # ``metadata.forebay_tier``, None also for ""; "" for what is no text


def read_conversation(body: bytes) -> Conversation:
    """Read a body that is known to be a generation request."""
    found = _decode_body(body)
    tier = _read_tier(found.metadata)
    messages = found.messages
    if messages is None:
        text = _read_prompt(found.prompt)
        texts = () if text is None else (text,)
        return Conversation(Turn(texts, is_boundary=True, is_first=True), None, tier)
    return Conversation(_turn_of(messages), _digest_beginning(messages), tier)


def _turn_of(messages: Sequence[_Message]) -> Turn:
    last = next((one.role for one in reversed(messages) if one.role not in _INSTRUCTIONS), "user")
    texts: list[str] = []
    for message in reversed(messages):
        if message.role == "user":
            text = _read_content(message.content)
            if text:
                texts.append(text)
            if len(texts) > MAX_EARLIER_TEXTS:
                break
    is_first = all(one.role == "user" or one.role in _INSTRUCTIONS for one in messages)
    return Turn(tuple(texts), is_boundary=last == "user", is_first=is_first)


def _read_content(content: msgspec.Raw) -> str:
    """Return a message's text: the content itself, or its text parts; "" where there is none."""
    try:
        decoded = _decode_content(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    if isinstance(decoded, str):
        return decoded
    return "\n".join([part.text for part in decoded if part.text and part.type in _TEXT_PARTS])


def _read_prompt(prompt: msgspec.Raw) -> str | None:
    """Return a completion's prompt, of several the first; None where it is tokens or nothing."""
    try:
        decoded = _decode_prompt(prompt)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(decoded, str):
        return decoded or None
    return decoded[0] if decoded and decoded[0] else None


def _read_tier(metadata: msgspec.Raw) -> str | None:
    try:
        named = _decode_members(metadata).get("forebay_tier")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if named is None or bytes(named) == b"null":
        return None
    try:
        return _decode_text(named) or None
    except (msgspec.DecodeError, RecursionError):
        return ""


def _digest_beginning(messages: Sequence[_Message]) -> bytes | None:
    """Return a digest of the messages up to the first of a user: in every process the same."""
    hashed = blake2b(digest_size=16)
    for message in messages:
        raw, role = bytes(message.content), message.role.encode()
        hashed.update(b"%d:%b%d:" % (len(role), role, len(raw)))
        hashed.update(raw[:_HASHED_BYTES])
        if message.role == "user":
            return hashed.digest()
    return None
