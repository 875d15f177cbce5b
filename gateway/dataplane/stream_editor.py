"""What is changed in a stream on its way to the client, and what is learned from it.

Frames arrive whole (:class:`backends.sse.FrameAligner`). The common case, a run of
``data: {"id"…\\n\\n`` frames, is told by its bytes and relayed without parsing; everything else is read
event by event, and of it only JSON objects and ``[DONE]`` are relayed. Changed, and nothing else: the
model's name, if the client asked for another; usage that we asked for and the client did not.
"""

from __future__ import annotations

import contextlib
import re

import msgspec
from stringzilla import find, rfind

from backends.sse import read_events
from gateway.dataplane.model_rename import ModelRename
from gateway.dataplane.plain_frames import (
    DONE_FRAME,
    PLAIN_START,
    count_plain,
    has_piece,
    is_lone_frame,
    without_lone_usage,
)
from gateway.dataplane.stream_usage import StreamUsage
from gateway.dataplane.told_errors import is_error, read_error_detail, tells_error
from gateway.dataplane.usage_member import (
    frame_around,
    read_closing,
    without_member,
    without_usage_member,
    without_usage_members,
)
from gateway.openai_schema.replies import NULL, Chunk, ErrorDetail

_FINISH = re.compile(rb'"finish_reason"\s*:\s*"[^"]')  # some write "" where there is none
_USAGE = re.compile(rb'"usage"\s*:\s*\{')

_decode_chunk = msgspec.json.Decoder(Chunk).decode


class StreamEditor:
    """Edits one stream; :meth:`edit` is called with each run of whole frames."""

    __slots__ = (
        "_before",
        "_choices_key",
        "_finished",
        "_hides_continuous",
        "_hides_total",
        "_is_continuous",
        "_is_under_way",
        "_latest",
        "_rename",
        "_usage_key",
        "_usage_member",
        "error",
        "has_content",
        "is_done",
        "is_over",
        "usage",
    )

    def __init__(
        self,
        *,
        usage: StreamUsage,
        rename: ModelRename | None,
        hides_total: bool,
        hides_continuous: bool,
    ) -> None:
        """Prepare for one stream.

        ``hides_total``: the client did not ask for the closing usage chunk. ``hides_continuous``:
        it did not ask for usage on every chunk.
        """
        self.usage = usage
        self.is_done = False  # [DONE] came
        self.is_over = False  # that, or an error
        self.has_content = False  # a non-empty piece of the answer came
        self.error: ErrorDetail | None = None  # the engine reported an error inside the stream
        self._rename = rename
        self._hides_total = hides_total
        self._hides_continuous = hides_continuous
        self._usage_key = self._usage_member = self._choices_key = b""
        self._is_continuous = True
        self._is_under_way = False
        self._before = self._latest = b""
        self._finished: dict[int, str] = {}  # why choices ended, where there are several

    @property
    def is_finished(self) -> bool:
        """Whether the answer is whole: ``[DONE]`` came, or every choice told why it ended."""
        if self.usage.is_by_choice and not self.is_done:
            return len(self._finished) >= self.usage.choices
        return self.is_done or bool(_FINISH.search(self._before) or _FINISH.search(self._latest))

    @property
    def cut_off(self) -> int | None:
        """How many of several choices ``max_tokens`` or the context has ended; None: unknown."""
        if len(self._finished) < self.usage.choices:
            return None
        return sum(reason == "length" for reason in self._finished.values())

    @property
    def is_empty(self) -> bool:
        """Whether nothing of an answer came: no piece of it, and no word on why it ended."""
        if self.has_content:
            return False
        return not (_FINISH.search(self._before) or _FINISH.search(self._latest))

    @property
    def lacks_total(self) -> bool:
        """Whether the client asked for a closing usage chunk and the engine told counts without it."""
        return not self._hides_total and self.usage.is_known and not self.usage.is_closed

    @property
    def latest_frame(self) -> bytes:
        """The last frame seen, or the data of the last event."""
        latest = self._latest.removesuffix(DONE_FRAME).strip()
        return latest[latest.rfind(b"\n") + 1 :]

    @property
    def passes_chunks(self) -> bool:
        """Whether :meth:`edit_chunk` may take chunks from now on."""
        hides_all = self._hides_continuous or not self._is_continuous
        return self._is_under_way and hides_all and self._rename is None

    def edit_chunk(self, read: bytes) -> bytes:
        """Return the chunk that the client gets for one that is a read of its own; b"" if that is for
        :meth:`edit` to say, and nothing was learned.

        Most reads of a stream are one plain frame: it leaves as it came, but for counts.
        """
        if not is_lone_frame(read):
            return b""
        chunk = read
        if not self._is_continuous:
            if find(read, b'"usage"') >= 0:
                return b""
            self.usage.uncounted_chunks += 1
        else:
            if find(read, self._choices_key) < 0:
                return b""
            chunk = without_lone_usage(read, self._usage_member)
            if not chunk:
                return b""
            self.usage.note(read)
        self._before, self._latest = self._latest, read
        return chunk

    def edit(self, frames: bytes, *, is_cut: bool = False) -> bytes:
        """Return what the client gets for ``frames``; of a cut one, only what is whole JSON."""
        is_one = find(frames, b"\n") == len(frames) - 2  # line: found at a third of the cost
        plain = int(find(frames, PLAIN_START) == 0) if is_one else count_plain(frames)
        if is_cut or not plain or find(frames, b'"error"') >= 0:
            return self._edit_events(frames)
        self._before, self._latest = self._latest, frames
        if not self._is_under_way:
            self._look_closer(frames)
        last = rfind(frames, b'"usage"')
        if last >= 0:
            last = rfind(frames, self._usage_key)
            if last < 0 and _USAGE.search(frames) is not None:
                return self._edit_events(frames)  # it is spaced in another way
        if last < 0:
            self.usage.uncounted_chunks += plain
        else:
            if self.usage.is_by_choice:
                self.usage.note_all(frames)
            else:
                self.usage.note(frames)
            if self._hides_continuous:
                if is_one and self._is_continuous and find(frames, self._choices_key) >= 0:
                    frames = without_usage_member(frames, last)
                else:
                    frames = self._without_usage(frames, last)
        if not is_one and frames.endswith(DONE_FRAME):
            self.is_done = self.is_over = True
        return frames if self._rename is None else self._rename.apply(frames)

    def _look_closer(self, frames: bytes) -> None:
        """Learn of a run what is known of most streams after the first: then it is under way."""
        if self.usage.is_by_choice and _FINISH.search(frames):
            self._note_finished_in(frames)
        if not self.has_content:
            self.has_content = has_piece(frames)
        if not self._usage_key:  # engines write either with or without a space after the colon
            spaced = frames.startswith(b'data: {"id": ')
            self._usage_key = b'"usage": {' if spaced else b'"usage":{'
            self._usage_member = (b", " if spaced else b",") + self._usage_key
            self._choices_key = b'"choices": [{' if spaced else b'"choices":[{'
            self._is_continuous = find(frames, self._usage_key, 0, frames.find(b"\n")) >= 0
        self._is_under_way = self.has_content and not self.usage.is_by_choice

    def _note_finished_in(self, frames: bytes) -> None:
        for event in read_events(frames):
            if event.data is not None and _FINISH.search(event.data):
                with contextlib.suppress(msgspec.DecodeError, RecursionError):
                    self._note_finished(_decode_chunk(event.data))

    def _note_finished(self, chunk: Chunk) -> None:
        for choice in chunk.choices or ():
            if choice.finish_reason:
                self._finished[choice.index] = choice.finish_reason

    def _without_usage(self, frames: bytes, last: int) -> bytes:
        """Take usage out of the frames that have it; drop those that have nothing else.

        ``last`` is where the last one has it. An engine whose first frame has none gives it at the
        end only: nothing before is searched then, until a frame with choices has it too.
        """
        start, end = frame_around(frames, last)
        closing = read_closing(frames[start:end])
        if closing is not None:
            if not self.usage.is_by_choice:  # else all were noted
                self.usage.note_closing(closing)
            if not (self._hides_total or self._is_continuous):
                return frames
            total = b"" if self._hides_total else frames[start:end]
            before = frames[:start]
            if self._is_continuous:
                before = self._without_members(before)
            return before + total + frames[end:]
        self._is_continuous = True
        return self._without_members(frames)

    def _without_members(self, frames: bytes) -> bytes:
        return without_usage_members(
            frames, self._usage_key, self._choices_key, keeps_total=not self._hides_total
        )

    def _edit_events(self, frames: bytes) -> bytes:
        """The careful way: event by event, by the rules of server-sent events."""
        out: list[bytes] = []
        for event in read_events(frames):
            if self.is_over:
                break
            out.extend(b": %b\n\n" % comment for comment in event.comments)
            if event.data is None:
                continue
            data = event.data.strip()
            if data == b"[DONE]":
                self.is_done = self.is_over = True
                out.append(DONE_FRAME)
                continue
            edited = self._edit_data(data, event.name)
            if edited:
                out.append(b"data: %b\n\n" % edited)
            self.is_over = self.error is not None
        return b"".join(out)

    def _edit_data(self, data: bytes, name: bytes) -> bytes:
        """Return the client's version of one event's data; b"" drops it."""
        if name == b"error":  # whatever it says
            self.error = read_error_detail(data)
            return b""
        if not data.startswith(b"{"):
            return b""
        data = data.replace(b"\n", b" ")  # JSON has raw line ends between tokens only
        self.has_content = self.has_content or has_piece(data)
        try:
            chunk = _decode_chunk(data)
        except (msgspec.ValidationError, RecursionError):
            return self._edit_unknown(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return b""
        if chunk.object == "error" or (chunk.error != NULL and is_error(chunk.error)):
            self.error = read_error_detail(data)
            return b""
        self._before, self._latest = self._latest, data
        if self.usage.is_by_choice:
            self._note_finished(chunk)
        if chunk.usage is None:
            self.usage.uncounted_chunks += 1
        else:
            self.usage.note_chunk(chunk)
            if chunk.choices:
                if self._hides_continuous:
                    data = without_member(data)
            elif self._hides_total:
                return b""
        return data if self._rename is None else self._rename.apply(data)

    def _edit_unknown(self, data: bytes) -> bytes:
        """An object of a shape that we do not know is the client's to judge."""
        if tells_error(data):
            self.error = read_error_detail(data)
            return b""
        self._before, self._latest = self._latest, data
        if b'"usage"' in data:
            self.usage.note(b"data: %b\n\n" % data)  # counts that are no integers are no counts
        return without_member(data) if self._hides_continuous else data
