"""The replies and stream chunks, in vLLM's field order (the order of declaration is the wire's)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType


class Usage(msgspec.Struct, frozen=True):
    """Token counts in a stream chunk."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int


class ReplyUsage(msgspec.Struct, frozen=True):
    """Token counts of a whole reply. OpenVINO does not tell how much came from its prefix cache."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: None = None
    completion_tokens_details: None = None


class Delta(msgspec.Struct, frozen=True):
    """What a chunk adds to a message."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True):
    """One choice in a chat chunk."""

    index: int
    delta: Delta
    logprobs: None = None
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType | None = UNSET  # in the last chunk only


class CompletionChunkChoice(msgspec.Struct, frozen=True):
    """One choice in a completion chunk."""

    index: int
    text: str
    logprobs: None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class Chunk(msgspec.Struct, frozen=True):
    """One stream event."""

    id: str
    object: str
    created: int  # seconds since the epoch
    model: str
    choices: tuple[Any, ...]  # of ChatChunkChoice or CompletionChunkChoice
    usage: Usage | UnsetType = UNSET


class AssistantMessage(msgspec.Struct, frozen=True):
    """The whole text of a chat choice."""

    role: str
    content: str
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None
    reasoning: None = None


class ChatChoice(msgspec.Struct, frozen=True):
    """One choice of a chat reply."""

    index: int
    message: AssistantMessage
    logprobs: None
    finish_reason: str
    stop_reason: str | int | None


class CompletionChoice(msgspec.Struct, frozen=True):
    """One choice of a completion reply."""

    index: int
    text: str
    logprobs: None
    finish_reason: str
    stop_reason: str | int | None


class Reply(msgspec.Struct, frozen=True):
    """A whole reply."""

    id: str
    object: str
    created: int
    model: str
    choices: tuple[Any, ...]  # of ChatChoice or CompletionChoice
    service_tier: None
    system_fingerprint: None
    usage: ReplyUsage
