"""The members of OpenAI's request bodies that we read. All others pass through unread.

Only types are checked here, and only of what every engine must understand alike; what a value may
be is the engine's to say. Messages may have any role and any members, as clients send many kinds.
"""

from __future__ import annotations

import msgspec


class StreamOptions(msgspec.Struct):
    """``stream_options``; members that we do not know survive in the raw body."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Message(msgspec.Struct):
    """One chat message: an object with a role."""

    role: str


class GenerationRequest(msgspec.Struct):
    """What both generation endpoints share."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: str | list[str] | None = None
    user: str | None = None


class ChatCompletionRequest(GenerationRequest, kw_only=True):
    """Body of ``POST /v1/chat/completions``."""

    messages: list[Message]
    tools: list[dict[str, msgspec.Raw]] | None = None
    tool_choice: msgspec.Raw = msgspec.Raw()
    response_format: dict[str, msgspec.Raw] | None = None


class CompletionRequest(GenerationRequest, kw_only=True):
    """Body of ``POST /v1/completions``; a prompt is text, tokens, or a list of either."""

    prompt: str | list[str | int | list[int]] | None = None

    @property
    def prompts(self) -> int:
        """How many prompts there are, each with choices of its own."""
        if isinstance(self.prompt, list) and self.prompt and not isinstance(self.prompt[0], int):
            return len(self.prompt)
        return 1
