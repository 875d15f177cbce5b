"""A request's body: what matters to the simulation is read, and how much it will generate."""

from __future__ import annotations

import math
import random
import zlib

import msgspec

from backends.local.errors import ApiError, InvalidValueError, UnknownModelError
from backends.simulated.config import SimulatedEngineConfig

_COMPLETION_DEFAULT_TOKENS = 16  # OpenAI's and vLLM's, on /v1/completions


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class _Body(msgspec.Struct):
    model: str | None = None
    messages: msgspec.Raw = msgspec.Raw()
    prompt: str | list[int] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None


class GenerationRequest(msgspec.Struct, frozen=True):
    """What will be generated, and how the client wants to have it."""

    is_chat: bool
    is_stream: bool
    has_usage: bool
    has_continuous_usage: bool
    prompt_tokens: int
    output_tokens: int
    finish_reason: str


_decode = msgspec.json.Decoder(_Body).decode


def read_generation_request(
    raw: bytes, *, is_chat: bool, config: SimulatedEngineConfig
) -> GenerationRequest:
    """Return what ``raw`` asks for. Raises :class:`backends.local.errors.ApiError` 400 or 404."""
    try:
        body = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, str(error)) from error
    if body.model is not None and body.model != config.model_name:
        raise UnknownModelError(body.model, config.model_name)
    if body.n not in {None, 1}:
        raise InvalidValueError("n", "The simulated engine makes one choice", body.n)
    if body.stream_options is not None and not body.stream:
        raise ApiError(400, "stream_options needs stream to be true.", param="stream_options")
    prompt_tokens = _count_prompt(body, is_chat=is_chat, config=config)
    output_tokens, finish_reason = _choose_length(body, raw, is_chat=is_chat, config=config)
    if prompt_tokens >= config.context_tokens:
        raise ApiError(
            400,
            f"The prompt has {prompt_tokens} tokens; the context of {config.context_tokens} tokens "
            "holds prompt and output.",
            param="messages" if is_chat else "prompt",
        )
    if output_tokens > config.context_tokens - prompt_tokens:
        output_tokens, finish_reason = config.context_tokens - prompt_tokens, "length"
    options = body.stream_options
    has_usage = options is not None and bool(options.include_usage)
    return GenerationRequest(
        is_chat=is_chat,
        is_stream=bool(body.stream),
        has_usage=has_usage,
        has_continuous_usage=has_usage
        and options is not None
        and bool(options.continuous_usage_stats),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        finish_reason=finish_reason,
    )


def _count_prompt(body: _Body, *, is_chat: bool, config: SimulatedEngineConfig) -> int:
    if is_chat:
        size = len(bytes(body.messages))
        if size <= 2:  # absent, or []
            raise ApiError(400, "messages must not be empty.", param="messages")
    elif body.prompt is None:
        raise ApiError(400, "prompt is required.", param="prompt")
    elif isinstance(body.prompt, list):
        return max(1, len(body.prompt))
    else:
        size = len(body.prompt.encode())
    return max(1, round(size / config.bytes_per_token))


def _choose_length(
    body: _Body, raw: bytes, *, is_chat: bool, config: SimulatedEngineConfig
) -> tuple[int, str]:
    """Return the output's tokens and why it ends; the same body always gets the same."""
    given = [limit for limit in (body.max_tokens, body.max_completion_tokens) if limit is not None]
    if any(limit < 1 for limit in given):
        raise InvalidValueError("max_tokens", "max_tokens must be at least 1", min(given))
    default = config.default_output_tokens if is_chat else _COMPLETION_DEFAULT_TOKENS
    limit = min(given, default=default)
    if config.mean_output_tokens is None:
        return limit, "length"
    spread = config.output_spread
    middle = math.log(config.mean_output_tokens) - spread * spread / 2
    drawn = random.Random(zlib.crc32(raw) ^ config.seed).lognormvariate(middle, spread)  # noqa: S311 - no secret
    wanted = max(1, round(drawn))
    return (wanted, "stop") if wanted < limit else (limit, "length")
