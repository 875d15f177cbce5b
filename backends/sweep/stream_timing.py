"""When a streamed reply's content came, and what its engine counted. Pure: times are handed in.

Events that arrive in one read have one time. Tokens are never counted by chunks: a chunk may have
several, or none; the counts are the engine's own (``stream_options.include_usage``).
"""

from __future__ import annotations

from array import array
from typing import Any

import msgspec

from backends.sse import FrameAligner, read_events
from backends.sweep.outcome import Failure

_MAX_FRAME_BYTES = 4 * 1024 * 1024


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None  # vLLM's name, of models that think aloud
    reasoning: str | None = None  # the same of newer ones


class _Choice(msgspec.Struct):
    delta: _Delta | None = None  # of a chat
    text: str | None = None  # of a completion
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode


class StreamTiming:
    """Fed with a stream's bytes as they come."""

    __slots__ = (
        "_aligner",
        "cached_input_tokens",
        "content_at",
        "detail",
        "failure",
        "input_tokens",
        "is_done",
        "output_tokens",
        "silent_end_at",
    )

    def __init__(self) -> None:
        self._aligner = FrameAligner(_MAX_FRAME_BYTES)
        self.content_at: array[float] = array("d")
        self.silent_end_at: float | None = None
        self.is_done = False
        self.input_tokens: int | None = None
        self.cached_input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.failure: Failure | None = None  # told by an event
        self.detail = ""

    def feed(self, data: bytes, at: float) -> None:
        """Take what arrived ``at``. Raises :class:`backends.errors.ReplyTooLargeError`."""
        frames = self._aligner.feed(data)
        if frames:
            for event in read_events(frames):
                if event.data is not None:
                    self._take(event.data, at)

    def find_failure(self) -> tuple[Failure, str] | None:
        """Return what is wrong with the stream now that it is over; None: nothing."""
        if self.failure is not None:
            return self.failure, self.detail
        if self._aligner.finish() or not self.is_done:
            if self.content_at:
                return Failure.CUT, "the stream ended before it was whole"
            return Failure.MALFORMED, "the answer is no stream of server-sent events"
        if not self.content_at:
            return Failure.NO_CONTENT, "the stream has no text"
        if not self.input_tokens or not self.output_tokens:
            return Failure.NO_USAGE, "the stream has no token counts"
        return None

    def _take(self, data: bytes, at: float) -> None:
        if data == b"[DONE]":
            self.is_done = True
            return
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._fail(Failure.MALFORMED, "an event of the stream is no chunk")
            return
        if event.error and isinstance(event.error, dict | str):  # false and {} say there is none
            self._fail(Failure.FAILED, _message_of(event.error))
            return
        if event.choices:
            self._note_choices(event.choices, at)
        usage = event.usage
        if usage is not None:  # cumulative where each chunk has it: the last one counts
            self.input_tokens = usage.prompt_tokens
            self.output_tokens = usage.completion_tokens
            details = usage.prompt_tokens_details
            self.cached_input_tokens = None if details is None else details.cached_tokens

    def _note_choices(self, choices: list[_Choice], at: float) -> None:
        for choice in choices:
            delta = choice.delta
            if choice.text or (
                delta is not None and (delta.content or delta.reasoning_content or delta.reasoning)
            ):
                self.content_at.append(at)
                return
        if self.content_at and any(choice.finish_reason for choice in choices):
            self.silent_end_at = at

    def _fail(self, failure: Failure, detail: str) -> None:
        if self.failure is None:
            self.failure, self.detail = failure, detail


def _message_of(error: Any) -> str:
    """Return the sentence of an error object, cut to a line."""
    message = error.get("message") if isinstance(error, dict) else error
    return " ".join(str(message).split())[:200]


def read_error(body: bytes) -> str:
    """Return the sentence in a refusal's body; "" if there is none that can be read."""
    try:
        content = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    if not isinstance(content, dict):
        return ""
    found = content.get("error") or content.get("message") or content.get("detail")
    return _message_of(found) if found else ""
