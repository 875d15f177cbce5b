"""A reply's bytes, in vLLM's field order, token after token."""

from __future__ import annotations

import secrets
import time
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from backends.openai_replies import (
    DONE,
    AssistantMessage,
    CalledFunction,
    ChatChoice,
    ChatChunkChoice,
    Chunk,
    CompletionChoice,
    CompletionChunkChoice,
    Delta,
    PromptTokensDetails,
    Reply,
    ReplyUsage,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from backends.simulated.generation_request import GenerationRequest
from backends.simulated.script import plain_token

FINGERPRINT = "simulated"
_encode = msgspec.json.Encoder().encode


def to_event(payload: object) -> bytes:
    """Return a server-sent event."""
    return b"data: %b\n\n" % _encode(payload)


class ReplyWriter:
    """Writes one request's reply. ``has_details``: whether usage tells what was cached."""

    def __init__(self, request: GenerationRequest, outer_id: str, *, has_details: bool) -> None:
        self.request = request
        self.has_details = has_details
        self.cached_tokens = 0  # of the prompts, set once they are known
        self.produced = [0] * request.choices
        self.id = f"{'chatcmpl' if request.is_chat else 'cmpl'}-{outer_id or secrets.token_hex(8)}"
        self.created = int(time.time())  # seconds since the epoch
        self._call_id = f"chatcmpl-tool-{secrets.token_hex(8)}"

    def _token_text(self, number: int, *, is_last: bool) -> str:
        """Return the text of a choice's ``number``-th token; the end of a text has none."""
        request = self.request
        if is_last and request.ends_by_itself:
            return ""
        pieces = request.pieces
        return plain_token(number) if pieces is None else pieces[number - 1]

    def role_events(self) -> bytes:
        """Return the events before the first token: a chat's choices with their role."""
        if not self.request.is_chat:
            return b""
        return b"".join(
            to_event(
                self._chunk(
                    (ChatChunkChoice(choice, Delta(role="assistant", content="")),),
                    self._running_usage(choice, 0),
                    is_first=True,
                )
            )
            for choice in range(self.request.choices)
        )

    def token_events(self, choice: int, *, is_last: bool) -> bytes:
        """Return the events of a choice's token, the one that :attr:`produced` counted last."""
        produced = self.produced[choice]
        events = b""
        if self.request.tool is not None and produced == 1:  # the name comes before the arguments
            function = CalledFunction(self.request.tool)
            call = ToolCallDelta(self._call_id, "function", 0, function)
            delta = Delta(content=None, tool_calls=(call,))
            named = ChatChunkChoice(choice, delta, token_ids=None)
            events = to_event(self._chunk((named,), self._running_usage(choice, produced)))
        return events + self._token_event(choice, produced, is_last=is_last)

    def _token_event(self, choice: int, produced: int, *, is_last: bool) -> bytes:
        request = self.request
        text = self._token_text(produced, is_last=is_last)
        reason = request.finish_reason if is_last else None
        logprobs = self._logprobs((text,)) if request.has_logprobs else None
        change: ChatChunkChoice | CompletionChunkChoice
        if request.is_chat:
            change = ChatChunkChoice(
                choice,
                self._delta(text),
                logprobs,
                reason,
                None if is_last else UNSET,
                None,
            )
        else:
            change = CompletionChunkChoice(choice, text, logprobs, reason, None, None, None)
        is_end = is_last and request.is_chat and not request.has_usage
        usage = self._running_usage(choice, produced)
        return to_event(self._chunk((change,), usage, is_end=is_end))

    def abort_events(self) -> bytes:
        """Return what ends the choices that are not complete, when the engine ends them."""
        return b"".join(
            self._abort_event(choice)
            for choice, produced in enumerate(self.produced)
            if produced < self.request.output_tokens
        )

    def _abort_event(self, choice: int) -> bytes:
        change: ChatChunkChoice | CompletionChunkChoice
        if self.request.is_chat:
            change = ChatChunkChoice(choice, Delta(), None, "abort", None, None)
        else:
            change = CompletionChunkChoice(choice, "", None, "abort", None, None, None)
        return to_event(self._chunk((change,), self._running_usage(choice, self.produced[choice])))

    def end_events(self) -> bytes:
        """Return the events after the last token."""
        request = self.request
        if not request.has_usage:
            return DONE
        inputs, outputs = request.prompt_tokens, sum(self.produced)
        details: PromptTokensDetails | UnsetType = UNSET
        if self.has_details:
            created = 0 if request.is_chat else UNSET
            details = PromptTokensDetails(self.cached_tokens, created)
        usage = Usage(inputs, inputs + outputs, outputs, details)
        return to_event(self._chunk((), usage, is_end=True)) + DONE

    def whole(self) -> bytes:
        """Return the whole reply as JSON."""
        request = self.request
        inputs, outputs = request.prompt_tokens, sum(self.produced)
        only_chat = None if request.is_chat else UNSET
        details = None
        if self.has_details:
            details = PromptTokensDetails(self.cached_tokens, 0 if request.is_chat else None, None)
        return _encode(
            Reply(
                self.id,
                "chat.completion" if request.is_chat else "text_completion",
                self.created,
                request.model,
                tuple(self._choice(choice) for choice in range(request.choices)),
                None,
                FINGERPRINT,
                ReplyUsage(inputs, inputs + outputs, outputs, details),
                only_chat,
                only_chat,
                only_chat,
                None,
                None,
                None,
            )
        )

    def _choice(self, choice: int) -> ChatChoice | CompletionChoice:
        request = self.request
        last, produced = request.output_tokens, self.produced[choice]
        texts = tuple(
            self._token_text(number, is_last=number == last) for number in range(1, produced + 1)
        )
        logprobs = self._logprobs(texts) if request.has_logprobs else None
        text = "".join(texts)
        reason = request.finish_reason if produced == last else "abort"
        if not request.is_chat:
            return CompletionChoice(choice, text, logprobs, reason, None, None, None, None, None)
        message = AssistantMessage("assistant", text)
        if request.tool is not None:
            function = CalledFunction(request.tool, text)
            call = ToolCall(self._call_id, "function", function)
            message = AssistantMessage("assistant", "", tool_calls=(call,))
        return ChatChoice(choice, message, logprobs, reason, None, None, None)

    def _delta(self, text: str) -> Delta:
        if not text:
            return Delta()
        if self.request.tool is None:
            return Delta(content=text)
        call = ToolCallDelta(function=CalledFunction(arguments=text))
        return Delta(content=None, tool_calls=(call,))

    def _logprobs(self, texts: tuple[str, ...]) -> dict[str, Any]:
        """Return as sure a model as can be, without alternatives."""
        if self.request.is_chat:
            content = [
                {"token": text, "logprob": 0.0, "bytes": list(text.encode()), "top_logprobs": []}
                for text in texts
            ]
            return {"content": content}
        offsets = [sum(map(len, texts[:number])) for number in range(len(texts))]
        return {
            "text_offset": offsets,
            "token_logprobs": [0.0] * len(texts),
            "tokens": list(texts),
            "top_logprobs": [{text: 0.0} for text in texts],
        }

    def _running_usage(self, choice: int, produced: int) -> Usage | UnsetType:
        # vLLM counts the chunk's own choice here, not the sum over choices: the sum comes last
        if not self.request.has_continuous_usage:
            return UNSET
        inputs = self.request.prompt_of(choice).tokens
        last = None if self.request.is_chat else UNSET
        return Usage(inputs, inputs + produced, produced, UNSET, last)

    def _chunk(
        self,
        choices: tuple[ChatChunkChoice | CompletionChunkChoice, ...],
        usage: Usage | UnsetType,
        *,
        is_first: bool = False,
        is_end: bool = False,
    ) -> Chunk:
        kind = "chat.completion.chunk" if self.request.is_chat else "text_completion"
        prompt = None if is_first else UNSET
        return Chunk(
            self.id,
            kind,
            self.created,
            self.request.model,
            choices,
            usage,
            prompt,
            prompt,
            FINGERPRINT if is_end else UNSET,
        )
