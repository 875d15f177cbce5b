"""The members of an engine's replies that we read: usage, choices' ends, errors."""

from __future__ import annotations

import msgspec

from billing.usage.event import TokenUsage

# msgspec takes no Raw in a union, so a raw member that may be absent defaults to JSON's null.
NULL = msgspec.Raw(b"null")


class PromptTokensDetails(msgspec.Struct):
    """``usage.prompt_tokens_details``."""

    cached_tokens: int | None = None


class CompletionTokensDetails(msgspec.Struct):
    """``usage.completion_tokens_details``."""

    reasoning_tokens: int | None = None


class Usage(msgspec.Struct):
    """``usage`` as vLLM and OpenAI write it. Counts are cumulative for the reply."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None

    @property
    def has_counts(self) -> bool:
        """Whether anything is counted: some engines write an empty object where they count nothing."""
        return self.prompt_tokens is not None or self.completion_tokens is not None

    def to_token_usage(self) -> TokenUsage:
        """Return the counts in our words."""
        prompt, completion = self.prompt_tokens_details, self.completion_tokens_details
        return TokenUsage(
            self.prompt_tokens,
            None if prompt is None else prompt.cached_tokens,
            self.completion_tokens,
            None if completion is None else completion.reasoning_tokens,
        )


class Choice(msgspec.Struct):
    """One choice of a chunk."""

    index: int = 0
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    """One event of a stream: a piece of the answer, its usage, or an error."""

    object: str | None = None
    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: msgspec.Raw = NULL


class Reply(msgspec.Struct):
    """A whole answer."""

    usage: Usage | None = None


class RepliedError(msgspec.Struct):
    """What tells an error: of a refusal, or in the place of an answer."""

    object: msgspec.Raw = NULL  # "error" in vLLM's older shape
    error: msgspec.Raw = NULL
    detail: msgspec.Raw = NULL  # FastAPI's


class RepliedChoices(msgspec.Struct):
    """Why the choices of a whole answer ended."""

    choices: list[Choice] | None = None


class ErrorDetail(msgspec.Struct):
    """The object inside ``{"error": …}``, or the same members without one around them."""

    message: str | None = None
    type: str | None = None
    param: str | None = None
    code: int | str | None = None
