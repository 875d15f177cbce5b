"""Server-sent events at the byte level: frames whole, then events read by the WHATWG rules.

A *frame* is the bytes of one event with the blank line that ends it. :class:`FrameAligner` cuts
what the network delivered at frame ends; :func:`read_events` reads frames as a browser would
(https://html.spec.whatwg.org/multipage/server-sent-events.html, section 9.2.6).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stringzilla import find

from backends.errors import ReplyTooLargeError

_BOM = b"\xef\xbb\xbf"


class FrameAligner:
    """Turns reads of any size into runs of whole frames.

    Line ends leave as ``\\n`` whatever they came as (CR, LF or CRLF); nothing else is touched, so
    frames that came with ``\\n`` leave byte for byte as they came. Multi-megabyte frames are
    gathered in linear time. Raises :class:`ReplyTooLargeError` over ``max_frame_bytes``.
    """

    __slots__ = (
        "_held",
        "_held_bytes",
        "_is_first",
        "_last",
        "_mark",
        "_max_frame_bytes",
        "_skips_lf",
        "is_clean",
    )

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._last = b""  # the last held byte: a frame's end may lie across two reads
        self._skips_lf = False  # the last read ended with a CR
        self._is_first = True
        self.is_clean = False  # the reads till now ended with a frame
        self._mark = b""  # what may be the beginning of a byte order mark

    def feed(self, data: bytes) -> bytes:
        """Return the whole frames that ``data`` completes; b"" if it completes none."""
        # A slice and StringZilla: a call of a method of ``bytes`` costs twice as much.
        if self.is_clean and find(data, b"\r") < 0 and data[-2:] == b"\n\n":
            return data
        frames = self._align(data)
        self.is_clean = not (self._held or self._is_first or self._skips_lf)
        return frames

    def _align(self, data: bytes) -> bytes:
        if self._is_first:
            data, self._mark = self._mark + data, b""
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._mark = data
                return b""
            self._is_first = False
            data = data.removeprefix(_BOM)
        if self._skips_lf or data.find(b"\r") >= 0:
            data = self._with_line_feeds(data)
        if not self._held:
            if data.endswith(b"\n\n"):
                return data
            end = data.rfind(b"\n\n") + 2
            if end == 1:
                self._hold(data)
                return b""
            self._hold(data[end:])
            return data[:end]
        end = (self._last + data).rfind(b"\n\n") + 1
        if end == 0:
            self._hold(data)
            return b""
        if self._held_bytes + end > self._max_frame_bytes:
            self._check_size(self._held_bytes + (self._last + data).find(b"\n\n") + 1)
        self._held.append(data[:end])
        frames = b"".join(self._held)
        self._held.clear()
        self._held_bytes = 0
        if end < len(data):
            self._hold(data[end:])
        return frames

    def finish(self) -> bytes:
        """Return what is left at the end of the stream as a frame: its end was cut off."""
        rest = self._mark + b"".join(self._held)
        self._mark = b""
        self._held.clear()
        return rest + b"\n\n" if rest.strip(b"\n") else b""

    def _hold(self, data: bytes) -> None:
        if not data:
            return
        self._held.append(data)
        self._held_bytes += len(data)
        self._last = data[-1:]
        self._check_size(self._held_bytes)

    def _check_size(self, frame_bytes: int) -> None:
        if frame_bytes > self._max_frame_bytes:
            raise ReplyTooLargeError(
                f"One event of the engine's stream is over {self._max_frame_bytes} bytes."
            )

    def _with_line_feeds(self, data: bytes) -> bytes:
        # A CR ends its line at once; if it was half of a CRLF cut in two, the LF is dropped later.
        if self._skips_lf:
            data = data.removeprefix(b"\n")
        self._skips_lf = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


class ServerSentEvent(NamedTuple):
    """One event: its data lines joined by ``\\n`` (None if it had none), its name, its comments."""

    data: bytes | None
    name: bytes
    comments: list[bytes]


def read_events(frames: bytes) -> Iterator[ServerSentEvent]:
    """Yield the events of ``frames``, whose lines end with ``\\n``."""
    for frame in frames.split(b"\n\n"):
        if not frame.strip(b"\n"):
            continue
        data: list[bytes] = []
        comments: list[bytes] = []
        name = b""
        for line in frame.split(b"\n"):
            field, colon, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value
            elif colon and not field:
                comments.append(value)
        yield ServerSentEvent(b"\n".join(data) if data else None, name, comments)
