"""A request's body: what matters to the simulation is read, and how much it will generate."""

from __future__ import annotations

import math
import random
import zlib
from typing import Any

import msgspec

from backends.local.errors import ApiError, InvalidValueError, UnknownModelError
from backends.simulated.config import SimulatedEngineConfig
from backends.simulated.prompt import Prompt, prompt_of_bytes, prompts_of
from backends.simulated.script import json_text, split_tokens

_COMPLETION_DEFAULT_TOKENS = 16  # OpenAI's and vLLM's, on /v1/completions
_MAX_CHOICES = 128


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class _JsonSchema(msgspec.Struct):
    schema: dict[str, Any] | None = None


class _ResponseFormat(msgspec.Struct):
    type: str
    json_schema: _JsonSchema | None = None


class _Function(msgspec.Struct):
    name: str
    parameters: dict[str, Any] | None = None


class _Tool(msgspec.Struct):
    function: _Function


class _Body(msgspec.Struct):
    model: str | None = None
    messages: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    tool_choice: str | _Tool | None = None
    response_format: _ResponseFormat | None = None
    prompt: Any = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | int | None = None
    cache_salt: str | None = None


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What will be generated, and how the client wants to have it."""

    is_chat: bool
    is_stream: bool
    has_usage: bool
    has_continuous_usage: bool
    has_logprobs: bool
    model: str
    prompts: tuple[Prompt, ...]
    choices_per_prompt: int
    output_tokens: int  # of each choice
    finish_reason: str
    pieces: tuple[str, ...] | None  # the tokens' texts; None: plain text
    tool: str | None  # the pieces are the arguments of a call of it

    @property
    def choices(self) -> int:
        """How many choices there are, of all prompts."""
        return len(self.prompts) * self.choices_per_prompt

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts, each counted once."""
        return sum(prompt.tokens for prompt in self.prompts)

    @property
    def ends_by_itself(self) -> bool:
        """Whether the last token is the end of the text rather than a piece of it."""
        return self.finish_reason != "length"

    def prompt_of(self, choice: int) -> Prompt:
        """Return the prompt of a choice."""
        return self.prompts[choice // self.choices_per_prompt]


_decode = msgspec.json.Decoder(_Body, strict=False).decode  # 100.0 is an integer, as in vLLM
_decode_tools = msgspec.json.Decoder(list[_Tool] | None).decode


def read_generation_request(
    raw: bytes, *, is_chat: bool, config: SimulatedEngineConfig, models: tuple[str, ...]
) -> GenerationRequest:
    """Return what ``raw`` asks for. Raises :class:`backends.local.errors.ApiError` 400 or 404.

    ``models``: the names that may be asked for, the model itself first.
    """
    try:
        body = _decode(raw)
        tools = _decode_tools(body.tools) if bytes(body.tools) else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = f"1 validation error:\n  {error}"
        raise ApiError(400, text, kind="Bad Request", param="body") from error
    if body.model is not None and body.model not in models:
        raise UnknownModelError(body.model, ", ".join(models))
    choices = 1 if body.n is None else body.n
    if choices < 1:
        raise ApiError(400, f"n must be at least 1, got {choices}.")
    if choices > _MAX_CHOICES:
        raise InvalidValueError("n", f"n must be at most {_MAX_CHOICES}, got {choices}.", choices)
    if body.stream_options is not None and not body.stream:
        problem = "Stream options can only be defined when `stream=True`. "
        raise ApiError(400, f"{problem}(parameter=stream_options)", param="stream_options")
    model = body.model or models[0]
    prompts = _read_prompts(body, is_chat=is_chat, config=config, salt=(model, body.cache_salt))
    longest = max(prompt.tokens for prompt in prompts)
    if longest >= config.context_tokens:
        raise _too_long(longest, config.context_tokens)
    tool, pieces = _choose_script(body, tools) if is_chat else (None, None)
    output_tokens, finish_reason = _choose_length(
        body, raw, is_chat=is_chat, config=config, pieces=pieces
    )
    if output_tokens > config.context_tokens - longest:
        output_tokens, finish_reason = config.context_tokens - longest, "length"
    if tool is not None and finish_reason == "stop" and body.tool_choice == "required":
        finish_reason = "tool_calls"  # a named call ends with "stop" in vLLM
    options = body.stream_options
    has_usage = options is not None and bool(options.include_usage)
    return GenerationRequest(
        is_chat=is_chat,
        is_stream=bool(body.stream),
        has_usage=has_usage,
        has_continuous_usage=has_usage
        and options is not None
        and bool(options.continuous_usage_stats),
        has_logprobs=body.logprobs is not None and body.logprobs is not False,
        model=model,
        prompts=prompts,
        choices_per_prompt=choices,
        output_tokens=output_tokens,
        finish_reason=finish_reason,
        pieces=pieces,
        tool=tool,
    )


def _read_prompts(
    body: _Body, *, is_chat: bool, config: SimulatedEngineConfig, salt: tuple[str, str | None]
) -> tuple[Prompt, ...]:
    if is_chat:
        messages = bytes(body.messages)
        if not messages:
            text = "1 validation error:\n  {'type': 'missing', 'loc': 'body.messages'}"
            raise ApiError(400, text, kind="Bad Request", param="body.messages")
        if messages.translate(None, b" \t\r\n") == b"[]":
            raise ApiError(400, "Cannot apply chat template to an empty conversation.")
        tools = bytes(body.tools)  # templates write them before the messages
        return (prompt_of_bytes(tools + messages, config.bytes_per_token, salt),)
    prompts = prompts_of(body.prompt, config.bytes_per_token, salt)
    if not prompts:
        raise ApiError(400, "prompt must be a text, token ids, or a list of them.", param="prompt")
    return prompts


def _too_long(tokens: int, context_tokens: int) -> ApiError:
    problem = (
        f"This model's maximum context length is {context_tokens} tokens. However, your prompt "
        f"contains at least {tokens} input tokens, which exceeds this limit even without any output "
        "tokens. Please reduce the length of the input prompt."
    )
    return InvalidValueError("input_tokens", problem, tokens)


def _choose_script(
    body: _Body, tools: list[_Tool] | None
) -> tuple[str | None, tuple[str, ...] | None]:
    """Return the tool to call and the pieces of the text; None, None for plain text."""
    if tools and body.tool_choice == "required":
        called: _Function | None = tools[0].function
    elif tools and isinstance(body.tool_choice, _Tool):
        name = body.tool_choice.function.name
        called = next((tool.function for tool in tools if tool.function.name == name), None)
        if called is None:
            raise ApiError(400, f"The tool {name} is not among the tools.", param="tool_choice")
    else:
        called = None
    wanted = body.response_format
    if called is not None:
        schema: dict[str, Any] | None = called.parameters or {"type": "object"}
    elif wanted is not None and wanted.type in {"json_object", "json_schema"}:
        schema = wanted.json_schema.schema if wanted.json_schema else None
    else:
        return None, None
    try:
        text = json_text(schema)
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise ApiError(400, f"Grammar error: {error}", param="response_format") from error
    return None if called is None else called.name, split_tokens(text)


def _choose_length(
    body: _Body,
    raw: bytes,
    *,
    is_chat: bool,
    config: SimulatedEngineConfig,
    pieces: tuple[str, ...] | None,
) -> tuple[int, str]:
    """Return the output's tokens and why it ends; the same body always gets the same."""
    given = [limit for limit in (body.max_tokens, body.max_completion_tokens) if limit is not None]
    context = config.context_tokens
    if any(limit < 1 for limit in given):
        limit = min(given)
        problem = f"max_tokens must be at least 1, got {limit}."
        raise InvalidValueError("max_tokens", problem, limit)
    if any(limit > context for limit in given):
        limit = max(given)
        problem = (
            f"max_tokens={limit} cannot be greater than max_model_len={context}. "
            "Please request fewer output tokens."
        )
        raise InvalidValueError("max_tokens", problem, limit)
    if pieces is not None:
        limit, wanted = min(given, default=context), len(pieces) + 1
        return (wanted, "stop") if wanted <= limit else (limit, "length")
    default = config.default_output_tokens if is_chat else _COMPLETION_DEFAULT_TOKENS
    limit = min(given, default=default)
    if config.mean_output_tokens is None:
        return limit, "length"
    spread = config.output_spread
    middle = math.log(config.mean_output_tokens) - spread * spread / 2
    drawn = random.Random(zlib.crc32(raw) ^ config.seed).lognormvariate(middle, spread)  # noqa: S311 - no secret
    wanted = max(1, round(drawn))
    return (wanted, "stop") if wanted < limit else (limit, "length")
