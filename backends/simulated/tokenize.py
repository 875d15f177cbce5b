"""``/tokenize``: the count that generation would use too, and made-up ids."""

from __future__ import annotations

from typing import Any

import msgspec

from backends.local.errors import ApiError
from backends.simulated.config import SimulatedEngineConfig
from backends.simulated.prompt import prompt_of_bytes, token_ids


class _Body(msgspec.Struct):
    prompt: str | None = None
    messages: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()


def tokenize(raw: bytes, config: SimulatedEngineConfig) -> dict[str, Any]:
    """Return the reply's body. Raises :class:`ApiError` 400."""
    try:
        body = msgspec.json.decode(raw, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = f"1 validation error:\n  {error}"
        raise ApiError(400, text, kind="Bad Request", param="body") from error
    messages = bytes(body.messages)
    text_bytes = body.prompt.encode() if body.prompt is not None else bytes(body.tools) + messages
    if body.prompt is None and not messages:
        raise ApiError(400, "prompt or messages is required.", param="prompt")
    count = prompt_of_bytes(text_bytes, config.bytes_per_token, None).tokens
    return {
        "count": count,
        "max_model_len": config.context_tokens,
        "tokens": token_ids(text_bytes, count),
        "token_strs": None,
    }
