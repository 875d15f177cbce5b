"""The text of an answer, for a moment, to be scored: never stored and never logged. Pure."""

from __future__ import annotations

import msgspec

_DATA = b"data:"


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    index: int | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    delta: _Message | None = None
    text: str | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice] = []


_decode = msgspec.json.Decoder(_Answer).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def read_whole(body: bytes) -> str | None:
    """Return the text of a reply's only choice, tool calls as JSON; None where there is none."""
    try:
        choices = _decode(body).choices
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return _text_of([choices[0]]) if choices else None


def read_stream(data: bytes) -> str | None:
    """Return the text of the only choice of a stream's frames, as :func:`read_whole`."""
    found: list[_Choice] = []
    for line in data.split(b"\n"):
        if not line.startswith(_DATA) or line.strip() == b"data: [DONE]":
            continue
        try:
            found += _decode(line[len(_DATA) :].strip()).choices[:1]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
    return _text_of(found) if found else None


def _text_of(choices: list[_Choice]) -> str | None:
    """Return what the parts of one choice add up to; None where that is nothing at all."""
    pieces: list[str] = []
    calls: dict[int, list[str]] = {}  # name and arguments
    for choice in choices:
        if choice.text is not None:
            pieces.append(choice.text)
        message = choice.message or choice.delta
        if message is None:
            continue
        if message.content is not None:
            pieces.append(message.content)
        for place, call in enumerate(message.tool_calls or ()):
            told = calls.setdefault(place if call.index is None else call.index, ["", ""])
            if call.function is not None:
                told[0] += call.function.name or ""
                told[1] += call.function.arguments or ""
    if calls:
        return _encode([_call_of(*calls[place]) for place in sorted(calls)]).decode()
    text = "".join(pieces)
    return text if text.strip() else None


def _call_of(name: str, arguments: str) -> dict[str, object]:
    try:
        return {"name": name, "arguments": msgspec.json.decode(arguments)}
    except (msgspec.DecodeError, RecursionError):
        return {"name": name, "arguments": arguments}
