"""Replies and stream chunks as vLLM writes them: the order of declaration is the wire's.

Shared by the engines that we bring. What an engine leaves ``UNSET`` is not on its wire.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

DONE = b"data: [DONE]\n\n"


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """How much of the prompt came from the engine's prefix cache."""

    cached_tokens: int
    created_cache_tokens: int | UnsetType | None = UNSET
    multimodal_tokens: UnsetType | None = UNSET


class Usage(msgspec.Struct, frozen=True):
    """Token counts in a stream chunk."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: PromptTokensDetails | UnsetType = UNSET
    completion_tokens_details: UnsetType | None = UNSET


class ReplyUsage(msgspec.Struct, frozen=True):
    """Token counts of a whole reply; details are None where an engine does not tell them."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: None = None


class CalledFunction(msgspec.Struct, frozen=True):
    """A tool call's function, or the piece of it that a chunk adds."""

    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class ToolCall(msgspec.Struct, frozen=True):
    """A tool call in a whole reply."""

    id: str
    type: str
    function: CalledFunction


class ToolCallDelta(msgspec.Struct, frozen=True):
    """What a chunk adds to a tool call."""

    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    index: int = 0
    function: CalledFunction | UnsetType = UNSET


class Delta(msgspec.Struct, frozen=True):
    """What a chunk adds to a message."""

    role: str | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    tool_calls: tuple[ToolCallDelta, ...] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True):
    """One choice in a chat chunk."""

    index: int
    delta: Delta
    logprobs: Any = None
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType | None = UNSET  # in the last chunk only
    token_ids: UnsetType | None = UNSET


class CompletionChunkChoice(msgspec.Struct, frozen=True):
    """One choice in a completion chunk."""

    index: int
    text: str
    logprobs: Any = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    prompt_token_ids: UnsetType | None = UNSET
    token_ids: UnsetType | None = UNSET


class Chunk(msgspec.Struct, frozen=True):
    """One stream event."""

    id: str
    object: str
    created: int  # seconds since the epoch
    model: str
    choices: tuple[Any, ...]  # of ChatChunkChoice or CompletionChunkChoice
    usage: Usage | UnsetType = UNSET
    prompt_token_ids: UnsetType | None = UNSET  # both in a chat's first chunk only
    prompt_text: UnsetType | None = UNSET
    system_fingerprint: str | UnsetType = UNSET  # in the last chunk only


class AssistantMessage(msgspec.Struct, frozen=True):
    """The whole text of a chat choice."""

    role: str
    content: str
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None
    tool_calls: tuple[ToolCall, ...] | UnsetType = UNSET
    reasoning: None = None


class ChatChoice(msgspec.Struct, frozen=True):
    """One choice of a chat reply."""

    index: int
    message: AssistantMessage
    logprobs: Any
    finish_reason: str
    stop_reason: str | int | None
    token_ids: UnsetType | None = UNSET
    routed_experts: UnsetType | None = UNSET


class CompletionChoice(msgspec.Struct, frozen=True):
    """One choice of a completion reply."""

    index: int
    text: str
    logprobs: Any
    finish_reason: str
    stop_reason: str | int | None
    token_ids: UnsetType | None = UNSET
    prompt_logprobs: UnsetType | None = UNSET
    prompt_token_ids: UnsetType | None = UNSET
    routed_experts: UnsetType | None = UNSET


class Reply(msgspec.Struct, frozen=True):
    """A whole reply."""

    id: str
    object: str
    created: int
    model: str
    choices: tuple[Any, ...]  # of ChatChoice or CompletionChoice
    service_tier: None
    system_fingerprint: str | None
    usage: ReplyUsage
    prompt_logprobs: UnsetType | None = UNSET  # these three of a chat only
    prompt_token_ids: UnsetType | None = UNSET
    prompt_text: UnsetType | None = UNSET
    kv_transfer_params: UnsetType | None = UNSET
    ec_transfer_params: UnsetType | None = UNSET
    metrics: UnsetType | None = UNSET
