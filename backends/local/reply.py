"""Turns what the engine produced into replies and stream events of one endpoint's kind."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from backends.local.errors import EngineFailureError
from backends.local.generation import Generation
from backends.local.messages import Produced
from backends.openai_replies import (
    DONE,
    AssistantMessage,
    ChatChoice,
    ChatChunkChoice,
    Chunk,
    CompletionChoice,
    CompletionChunkChoice,
    Delta,
    Reply,
    ReplyUsage,
    Usage,
)

_OUTER_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class ReplyHead:
    """What every chunk of one reply repeats, and what the client wants to see in them."""

    id: str
    created: int  # seconds since the epoch
    model: str
    is_chat: bool
    choices_per_prompt: int = 1
    has_usage: bool = False  # a last chunk with the sum
    has_continuous_usage: bool = False  # a cumulative count in each chunk


def new_reply_id(prefix: str, headers: Mapping[str, str]) -> str:
    """Return ``PREFIX-…`` with the caller's x-request-id if it sent a plain one, as vLLM does."""
    outer = headers.get("x-request-id", "")
    return f"{prefix}-{outer if _OUTER_ID.fullmatch(outer) else secrets.token_hex(8)}"


def now_seconds() -> int:
    """Return the time as OpenAI writes it."""
    return int(time.time())


@dataclass
class _Tally:
    """One choice's text and count so far."""

    text: str = ""
    output_tokens: int = 0
    finish_reason: str = "stop"
    stop_reason: str | int | None = None

    def add(self, event: Produced) -> None:
        self.text += event.text
        self.output_tokens = event.output_tokens
        self.finish_reason = event.finish_reason or self.finish_reason
        self.stop_reason = event.stop_reason


async def whole_reply(head: ReplyHead, generation: Generation, prompt_tokens: list[int]) -> bytes:
    """Wait for every choice and return the JSON body.

    Raises :class:`EngineFailureError`, :class:`backends.local.errors.ClientGoneError`.
    """
    tallies = [_Tally() for _ in prompt_tokens]
    async for index, event in generation.produced():
        tallies[index].add(event)
    inputs, outputs = _sums(head, prompt_tokens, [tally.output_tokens for tally in tallies])
    reply = Reply(
        head.id,
        "chat.completion" if head.is_chat else "text_completion",
        head.created,
        head.model,
        tuple(_choice(head, index, tally) for index, tally in enumerate(tallies)),
        None,
        None,
        ReplyUsage(inputs, inputs + outputs, outputs),
    )
    return _encode(reply)


def _sums(head: ReplyHead, prompt_tokens: list[int], output_tokens: list[int]) -> tuple[int, int]:
    """Each prompt counts once however many choices it has; every choice's output counts."""
    return sum(prompt_tokens[:: head.choices_per_prompt]), sum(output_tokens)


def _choice(head: ReplyHead, index: int, tally: _Tally) -> ChatChoice | CompletionChoice:
    if head.is_chat:
        message = AssistantMessage("assistant", tally.text)
        return ChatChoice(index, message, None, tally.finish_reason, tally.stop_reason)
    return CompletionChoice(index, tally.text, None, tally.finish_reason, tally.stop_reason)


async def stream_events(
    head: ReplyHead, generation: Generation, prompt_tokens: list[int]
) -> AsyncGenerator[bytes]:
    """Yield the server-sent events, one for each token as it comes.

    An engine failure is told in an event of its own, as vLLM does. Raises
    :class:`backends.local.errors.ClientGoneError`.
    """
    output_tokens = [0] * len(prompt_tokens)
    has_roles = not head.is_chat
    try:
        async for index, event in generation.produced():
            if not has_roles:
                has_roles = True
                for choice in range(len(prompt_tokens)):
                    yield _event(_role_chunk(head, choice, prompt_tokens[choice]))
            output_tokens[index] = event.output_tokens
            yield _event(_text_chunk(head, index, event, prompt_tokens[index]))
        if head.has_usage:
            inputs, outputs = _sums(head, prompt_tokens, output_tokens)
            yield _event(_chunk(head, (), Usage(inputs, inputs + outputs, outputs)))
    except EngineFailureError as error:
        yield b"data: " + _encode(error.payload()) + b"\n\n"
    yield DONE


def _event(chunk: Chunk) -> bytes:
    return b"data: " + _encode(chunk) + b"\n\n"


def _role_chunk(head: ReplyHead, index: int, inputs: int) -> Chunk:
    choice = ChatChunkChoice(index, Delta(role="assistant", content=""))
    return _chunk(head, (choice,), _continuous_usage(head, inputs, 0))


def _text_chunk(head: ReplyHead, index: int, event: Produced, inputs: int) -> Chunk:
    choice: ChatChunkChoice | CompletionChunkChoice
    if head.is_chat:
        stop_reason = UNSET if event.finish_reason is None else event.stop_reason
        delta = Delta(content=event.text)
        choice = ChatChunkChoice(
            index, delta, finish_reason=event.finish_reason, stop_reason=stop_reason
        )
    else:
        choice = CompletionChunkChoice(
            index, event.text, finish_reason=event.finish_reason, stop_reason=event.stop_reason
        )
    return _chunk(head, (choice,), _continuous_usage(head, inputs, event.output_tokens))


def _continuous_usage(head: ReplyHead, inputs: int, outputs: int) -> Usage | UnsetType:
    # vLLM counts the chunk's own choice here, not the sum over choices: the sum comes last
    return Usage(inputs, inputs + outputs, outputs) if head.has_continuous_usage else UNSET


def _chunk(
    head: ReplyHead,
    choices: tuple[ChatChunkChoice | CompletionChunkChoice, ...],
    usage: Usage | UnsetType,
) -> Chunk:
    kind = "chat.completion.chunk" if head.is_chat else "text_completion"
    return Chunk(head.id, kind, head.created, head.model, choices, usage)
