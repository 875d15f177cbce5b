"""The chunk that ends a stream early as ``max_tokens`` would have: ``finish_reason: "length"``."""

from __future__ import annotations

import time
from typing import Any

import msgspec


class _Origin(msgspec.Struct):
    """What a chunk has in common with the others of its stream."""

    id: str = "chatcmpl-forebay"
    created: int | None = None


_decode = msgspec.json.Decoder(_Origin).decode
_encode = msgspec.json.Encoder().encode


def length_marker(latest_frame: bytes, *, endpoint: str, model: str, choices: int) -> bytes:
    """Return the event. ``latest_frame`` is one of the stream's, for its id and time."""
    try:
        origin = _decode(latest_frame.removeprefix(b"data: "))
    except msgspec.DecodeError:
        origin = _Origin()
    is_chat = endpoint == "chat.completions"
    content: dict[str, Any] = {"delta": {}} if is_chat else {"text": ""}
    return b"data: %b\n\n" % _encode(
        {
            "id": origin.id,
            "object": "chat.completion.chunk" if is_chat else "text_completion",
            "created": int(time.time()) if origin.created is None else origin.created,
            "model": model,
            "choices": [
                {"index": index, **content, "logprobs": None, "finish_reason": "length"}
                for index in range(choices)
            ],
        }
    )
