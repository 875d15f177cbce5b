"""A reply's bytes, in vLLM's field order, token after token."""

from __future__ import annotations

import secrets
import time

import msgspec
from msgspec import UNSET, UnsetType

from backends.local.reply_schema import (
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
from backends.simulated.generation_request import GenerationRequest

DONE = b"data: [DONE]\n\n"
_WORDS = (" water", " over", " the", " still", " weir", " runs", " by", " night")
_encode = msgspec.json.Encoder().encode


def token_text(number: int) -> str:
    """Return the text of an answer's ``number``-th token, from 1: the same in each answer."""
    return _WORDS[(number - 1) % len(_WORDS)]


class ReplyWriter:
    """Writes one request's reply."""

    def __init__(self, request: GenerationRequest, model_name: str, outer_id: str) -> None:
        self.request = request
        self.model_name = model_name
        prefix = "chatcmpl" if request.is_chat else "cmpl"
        self.id = f"{prefix}-{outer_id or secrets.token_hex(8)}"
        self.created = int(time.time())  # seconds since the epoch

    def token_events(self, produced: int, *, is_last: bool) -> bytes:
        """Return the events that go out with the ``produced``-th token."""
        request = self.request
        finish_reason = request.finish_reason if is_last else None
        text = token_text(produced)
        choice: ChatChunkChoice | CompletionChunkChoice
        events = b""
        if request.is_chat:
            if produced == 1:
                role = ChatChunkChoice(0, Delta(role="assistant", content=""))
                events = self._event(role, 0)
            stop_reason = None if is_last else UNSET
            choice = ChatChunkChoice(
                0, Delta(content=text), finish_reason=finish_reason, stop_reason=stop_reason
            )
        else:
            choice = CompletionChunkChoice(0, text, finish_reason=finish_reason)
        events += self._event(choice, produced)
        if is_last:
            if request.has_usage:
                chunk = self._chunk((), self._usage(produced))
                events += b"data: %b\n\n" % _encode(chunk)
            events += DONE
        return events

    def whole(self) -> bytes:
        """Return the whole reply as JSON."""
        request = self.request
        inputs, outputs = request.prompt_tokens, request.output_tokens
        text = "".join(token_text(number) for number in range(1, outputs + 1))
        choice: ChatChoice | CompletionChoice
        if request.is_chat:
            message = AssistantMessage("assistant", text)
            choice = ChatChoice(0, message, None, request.finish_reason, None)
        else:
            choice = CompletionChoice(0, text, None, request.finish_reason, None)
        return _encode(
            Reply(
                self.id,
                "chat.completion" if request.is_chat else "text_completion",
                self.created,
                self.model_name,
                (choice,),
                None,
                None,
                ReplyUsage(inputs, inputs + outputs, outputs),
            )
        )

    def _event(self, choice: ChatChunkChoice | CompletionChunkChoice, produced: int) -> bytes:
        usage = self._usage(produced) if self.request.has_continuous_usage else UNSET
        return b"data: %b\n\n" % _encode(self._chunk((choice,), usage))

    def _usage(self, produced: int) -> Usage:
        inputs = self.request.prompt_tokens
        return Usage(inputs, inputs + produced, produced)

    def _chunk(
        self,
        choices: tuple[ChatChunkChoice | CompletionChunkChoice, ...],
        usage: Usage | UnsetType,
    ) -> Chunk:
        kind = "chat.completion.chunk" if self.request.is_chat else "text_completion"
        return Chunk(self.id, kind, self.created, self.model_name, choices, usage)
