"""The chunks of a stream that are ours: one that ends it early, one that closes it with its counts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from billing.usage.event import TokenUsage


_CHAT = "chat.completions"


class _Origin(msgspec.Struct):
    """What a chunk has in common with the others of its stream."""

    id: str = "chatcmpl-forebay"
    created: int | None = None


_decode = msgspec.json.Decoder(_Origin).decode
_encode = msgspec.json.Encoder().encode


def length_marker(latest_frame: bytes, *, endpoint: str, model: str, choices: int) -> bytes:
    """Return the event that ends a stream as ``max_tokens`` would: ``finish_reason: "length"``.

    ``latest_frame`` is one of the stream's, for its id and time.
    """
    content: dict[str, Any] = {"delta": {}} if endpoint == _CHAT else {"text": ""}
    ends = [
        {"index": index, **content, "logprobs": None, "finish_reason": "length"}
        for index in range(choices)
    ]
    return _event(latest_frame, endpoint, model, choices=ends)


def closing_chunk(latest_frame: bytes, usage: TokenUsage, *, endpoint: str, model: str) -> bytes:
    """Return the event that tells the counts, of a stream whose engine told them elsewhere."""
    tokens, output = usage.input_tokens or 0, usage.output_tokens or 0
    counts: dict[str, Any] = {
        "prompt_tokens": tokens,
        "total_tokens": tokens + output,
        "completion_tokens": output,
    }
    if usage.cached_input_tokens is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.cached_input_tokens}
    if usage.reasoning_tokens is not None:
        counts["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return _event(latest_frame, endpoint, model, choices=[], usage=counts)


def _event(latest_frame: bytes, endpoint: str, model: str, **members: Any) -> bytes:
    try:
        origin = _decode(latest_frame.removeprefix(b"data: "))
    except (msgspec.DecodeError, RecursionError):
        origin = _Origin()
    return b"data: %b\n\n" % _encode(
        {
            "id": origin.id,
            "object": "chat.completion.chunk" if endpoint == _CHAT else "text_completion",
            "created": int(time.time()) if origin.created is None else origin.created,
            "model": model,
            **members,
        }
    )
