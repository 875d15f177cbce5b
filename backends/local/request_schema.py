"""The request bodies, as OpenAI and vLLM spell them. Unknown fields are ignored, as vLLM does."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]


class ContentPart(BaseModel):
    """A part of a message; only text parts can be served."""

    type: str
    text: str | None = None


class Message(BaseModel):
    """One turn of a chat."""

    role: str
    content: str | list[ContentPart] | None = None


class StreamOptions(BaseModel):
    """What a stream reports besides text."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class JsonSchemaFormat(BaseModel):
    """The named schema of a ``json_schema`` response format."""

    name: str
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")


class ResponseFormat(BaseModel):
    """The form that the text must have."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class GenerationRequest(BaseModel):
    """What both endpoints take. None means "not given" throughout: engine defaults apply."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[TokenId] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    response_format: ResponseFormat | None = None
    logit_bias: dict[str, float] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    guided_whitespace_pattern: Any = None
    structural_tag: Any = None
    allowed_token_ids: Any = None
    bad_words: Any = None


class ChatRequest(GenerationRequest):
    """Body of POST /v1/chat/completions."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    echo: bool = False


class CompletionRequest(GenerationRequest):
    """Body of POST /v1/completions."""

    prompt: str | list[str] | list[TokenId] | list[list[TokenId]]
    echo: bool = False
    suffix: str | None = None
    logprobs: int | None = None
    best_of: int | None = None
