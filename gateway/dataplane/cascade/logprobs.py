"""Log probabilities in an engine's answer: read, and taken out again where the client asked for none.

Taken out means ``null`` in their place, which is what vLLM writes for who did not ask. All other
bytes stay as they are.
"""

from __future__ import annotations

import msgspec

from backends.sse import read_events
from gateway.dataplane.model_rename import ModelRename
from gateway.dataplane.stream_editor import StreamEditor
from gateway.dataplane.stream_usage import StreamUsage
from gateway.openai_schema.replies import NULL
from routing.complexity.confidence import FirstTokens

_NAME = b'"logprobs"'
_KEYS = (b'"logprobs":', b'"logprobs": ')
# Around what vLLM tells of a chat's token; behind the value's own end stands the next member.
_CHAT_BEGIN = b'"logprobs":{"content":[{'
_CHAT_END = b'}]},"finish_reason":'
_CHAT_END_BYTES = len(b"}]}")
_EVENT_KEYS = (b"data: ", b"data:")


class _Choice(msgspec.Struct):
    logprobs: msgspec.Raw = NULL


class _Answer(msgspec.Struct):
    choices: list[_Choice] | None = None


class _Token(msgspec.Struct):
    logprob: float | None = None


class _Logprobs(msgspec.Struct):
    content: list[_Token] | None = None  # of a chat
    token_logprobs: list[float | None] | None = None  # of a completion


_decode_answer = msgspec.json.Decoder(_Answer).decode
_decode_logprobs = msgspec.json.Decoder(_Logprobs).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_choices = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_encode = msgspec.json.Encoder().encode


def read_logprobs(data: bytes, tokens: FirstTokens, *, hides: bool) -> bytes:
    """Add what an answer, or a piece of one, tells to ``tokens``; return it, with ``hides`` without.

    What is of no shape that we know is returned as it is.
    """
    if _NAME not in data or (tokens.is_complete and not hides):
        return data
    if tokens.is_complete and (cut := _cut(data)) is not None:
        return cut
    try:
        choices = _decode_answer(data).choices or []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data
    told = [bytes(choice.logprobs) for choice in choices if choice.logprobs != NULL]
    for logprobs in told:
        if not tokens.is_complete:
            _add(logprobs, tokens)
        if hides:
            data = _without(data, logprobs)
    return data


class LogprobEditor(StreamEditor):
    """Edits a stream as ever, once its log probabilities are read and, unless wanted, taken out."""

    __slots__ = ("_hides", "tokens")

    def __init__(
        self,
        *,
        usage: StreamUsage,
        rename: ModelRename | None,
        hides_total: bool,
        hides_continuous: bool,
        hides_logprobs: bool,
        tokens: FirstTokens,
    ) -> None:
        """As a :class:`StreamEditor`; ``tokens`` takes what is read."""
        super().__init__(
            usage=usage,
            rename=rename,
            hides_total=hides_total,
            hides_continuous=hides_continuous,
        )
        self._hides = hides_logprobs
        self.tokens = tokens

    def edit(self, frames: bytes, *, is_cut: bool = False) -> bytes:
        """Return what the client gets for ``frames``."""
        is_read = self.tokens.is_complete
        if _NAME in frames and (self._hides or not is_read):
            cut = _cut(frames) if is_read else None  # the usual: one token after the other
            if cut is None:
                cut = b"\n\n".join([self._read(frame) for frame in frames.split(b"\n\n")])
            frames = cut
        return super().edit(frames, is_cut=is_cut)

    def _read(self, frame: bytes) -> bytes:
        if _NAME not in frame:
            return frame
        for key in _EVENT_KEYS:
            if frame.startswith(key) and b"\n" not in frame:
                return key + read_logprobs(frame[len(key) :], self.tokens, hides=self._hides)
        return self._read_event(frame)

    def _read_event(self, frame: bytes) -> bytes:
        """The careful way, by the rules of server-sent events."""
        lines: list[bytes] = []
        for event in read_events(frame):
            lines += [b": " + comment for comment in event.comments]
            if event.name:
                lines.append(b"event: " + event.name)
            if event.data is not None:
                data = event.data.replace(b"\n", b" ")
                lines.append(b"data: " + read_logprobs(data, self.tokens, hides=self._hides))
        return b"\n".join(lines)


def _add(logprobs: bytes, tokens: FirstTokens) -> None:
    try:
        told = _decode_logprobs(logprobs)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    for token in told.content or ():
        tokens.add(token.logprob)
    for logprob in told.token_logprobs or ():
        tokens.add(logprob)


def _cut(data: bytes) -> bytes | None:
    """Return a piece of a chat without them, unread, where all of it is as vLLM writes it; else None.

    No text can look like the members' names, whose quotes would be escaped there.
    """
    start = data.find(_CHAT_BEGIN)
    end = data.find(_CHAT_END, start)
    if start < 0 or end < 0 or data.count(_NAME) != 1:
        return None
    return data[: start + len(_KEYS[0])] + b"null" + data[end + _CHAT_END_BYTES :]


def _without(data: bytes, logprobs: bytes) -> bytes:
    """Put ``null`` for one value. No text has the member's name in quotes: there they are escaped."""
    for key in _KEYS:
        start = data.find(key + logprobs)
        if start >= 0:
            start += len(key)
            return data[:start] + b"null" + data[start + len(logprobs) :]
    members = _decode_members(data)  # some other space between name and value
    choices = _decode_choices(members["choices"])
    for choice in choices:
        if "logprobs" in choice and bytes(choice["logprobs"]) == logprobs:
            choice["logprobs"] = NULL
    return _encode({**members, "choices": msgspec.Raw(_encode(choices))})
