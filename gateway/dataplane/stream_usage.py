"""What a stream has cost so far: usage found in frames, read only when somebody asks.

vLLM's ``continuous_usage_stats`` puts cumulative counts on every chunk: the last one counts, not
the sum. With several choices (``n`` > 1, or several prompts) each chunk counts only its own choice,
so the last of each choice is kept and they are added up, until the closing chunk, which has no
choices, gives the total.

Of an engine that counts at a stream's end only it is known how many chunks came: nearly each is a token or
more. That is enough to hold money by, and nothing is ever billed by it.
"""

from __future__ import annotations

import contextlib

import msgspec

from backends.sse import read_events
from billing.usage.event import TokenUsage
from gateway.dataplane.usage_member import frame_around
from gateway.openai_schema.replies import Chunk, Reply, Usage

_decode_chunk = msgspec.json.Decoder(Chunk).decode
_decode_usage = msgspec.json.Decoder(Reply).decode


class StreamUsage:
    """Cumulative counts of one stream."""

    __slots__ = (
        "_by_choice",
        "_choices_per_prompt",
        "_earlier",
        "_is_final",
        "_last",
        "_latest",
        "choices",
        "uncounted_chunks",
    )

    def __init__(self, *, choices_per_prompt: int, prompts: int) -> None:
        self.choices = choices_per_prompt * prompts  # how many the client asked for
        self._choices_per_prompt = choices_per_prompt
        self._by_choice: dict[int, Usage] | None = {} if self.choices > 1 else None
        self._latest: bytes | None = None  # the last run with usage, unread
        self._earlier: bytes | None = None  # the one before, if it is unread too
        self._last: Usage | None = None
        self._is_final = False
        self.uncounted_chunks = 0  # that came without usage

    @property
    def is_by_choice(self) -> bool:
        """Whether every frame with usage must be noted, not only the last."""
        return self._by_choice is not None

    @property
    def is_closed(self) -> bool:
        """Whether the chunk that closes a stream with its counts came."""
        self._read_noted()
        return self._is_final

    def note(self, frames: bytes) -> None:
        """Take a run with frames that carry usage. Cheap: the last is read when somebody asks."""
        self._earlier, self._latest = self._latest, frames

    def note_closing(self, chunk: Chunk) -> None:
        """Take the chunk that closes the run just noted, if it counts anything: the run is not read then."""
        usage = chunk.usage
        if usage is not None and usage.has_counts:
            self._latest = self._earlier = None
            self._is_final = True
            self._last = usage

    def note_all(self, frames: bytes) -> None:
        """Take all frames of a run; needed where each counts only its own choice."""
        for event in read_events(frames):
            if event.data is not None:
                self._take(event.data)

    def note_chunk(self, chunk: Chunk) -> None:
        """Take a chunk that was decoded anyway."""
        self._read_noted()
        usage = chunk.usage
        if usage is None or not usage.has_counts:
            return
        # Some engines tell the prompt's counts first, in a chunk that looks like the closing one.
        self._is_final = not chunk.choices
        if self._by_choice is not None and chunk.choices:
            self._by_choice[chunk.choices[0].index] = usage
            return
        self._last = usage

    @property
    def is_known(self) -> bool:
        """Whether the engine has told any counts yet."""
        return self._latest is not None or self._last is not None or bool(self._by_choice)

    def total(self) -> TokenUsage:
        """Return the counts so far; all None if the engine has told none."""
        self._read_noted()
        if self._is_final or not self._by_choice:
            return TokenUsage() if self._last is None else self._last.to_token_usage()
        inputs: dict[int, int] = {}
        outputs = 0
        for index, usage in self._by_choice.items():
            prompt = index // self._choices_per_prompt
            inputs[prompt] = max(inputs.get(prompt, 0), usage.prompt_tokens or 0)
            outputs += usage.completion_tokens or 0
        return TokenUsage(sum(inputs.values()), None, outputs, None)

    def _read_noted(self) -> None:
        latest, earlier = self._latest, self._earlier
        if latest is None:
            return
        self._latest = self._earlier = None
        before, self._last = self._last, None
        # The usage of the last may be another member's own, or count nothing: an engine's statistics.
        if not self._has_read(latest) and (earlier is None or not self._has_read(earlier)):
            self._last = before

    def _has_read(self, frames: bytes) -> bool:
        """Read the last frame of a run that counts anything; tell whether there is one."""
        found = frames.rfind(b'"usage"')
        while found >= 0:
            start, end = frame_around(frames, found)
            self.note_all(frames[start:end])
            if self._last is not None:
                return True
            found = frames.rfind(b'"usage"', 0, start)
        return False

    def _take(self, data: bytes) -> None:
        if not data.startswith(b"{"):
            return
        try:
            self.note_chunk(_decode_chunk(data))
        except msgspec.ValidationError:
            self._take_counts(data)
        except (msgspec.DecodeError, RecursionError):
            return

    def _take_counts(self, data: bytes) -> None:
        """Take the counts of a chunk whose other members have a shape of their own.

        Not where each choice counts for itself: nobody could say whose they are.
        """
        if self._by_choice is not None:
            return
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            usage = _decode_usage(data).usage
            if usage is not None and usage.has_counts:
                self._last = usage
