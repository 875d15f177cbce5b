"""The frames of a stream as vLLM and OpenAI write them, told and counted by their bytes. Pure.

A plain frame is one line that begins with ``data: {"id"``, and the blank line that ends it. Searched is
with StringZilla: CPython's own searches read byte by byte, or skip a few, at five to ten times the cost.
"""

from __future__ import annotations

import re

from stringzilla import count, find, find_first_of, rfind

from backends.lone_chunk import LINES, MOST_BYTES

DONE_FRAME = b"data: [DONE]\n\n"
PLAIN_START = b'data: {"id"'
# By the bytes of a read that is one chunk with one such frame: how it begins; else what none does.
_LONE_STARTS = tuple((line or b"-") + PLAIN_START for line in LINES)
_LONE_END = b"\n\n\r\n"
_COUNTED_END = b"}}" + _LONE_END
_LONGEST_LINE = max(map(len, LINES))
_CONTENT = b'"content":"'  # as most write it
_PIECE = re.compile(
    rb'"(?:content|text|refusal|reasoning_content|reasoning|arguments)"\s*:\s*"[^"]'
)


def count_plain(frames: bytes) -> int:
    """Return how many frames there are, if all are plain but for ``[DONE]`` at the end; else 0.

    Each pair of line ends is then followed by a frame's start or by nothing, and there are no other
    line ends.
    """
    if not frames.startswith(PLAIN_START) or not frames.endswith(b"\n\n"):
        return 0
    plain: int = count(frames, b"\n\n" + PLAIN_START) + 1
    if frames.endswith(b"\n\n" + DONE_FRAME):
        plain += 1
    return plain if count(frames, b"\n") == 2 * plain else 0


def is_lone_frame(read: bytes) -> bool:
    """Tell whether a read that comes between two chunks is one chunk with one plain frame.

    Of no error. A slice and StringZilla again: a call of a method of ``bytes`` costs twice as much.
    """
    size = len(read)
    return (
        size < MOST_BYTES
        # No line end before that of the frame, but the one of the chunk's own line.
        and find_first_of(read, b"\r\n", _LONGEST_LINE) == size - len(_LONE_END)
        and read[-len(_LONE_END) :] == _LONE_END
        and find(read, _LONE_STARTS[size]) == 0
        and find(read, b'"error"') < 0
    )


def without_lone_usage(read: bytes, usage_key: bytes) -> bytes:
    """Return the chunk of a lone frame without its usage; b"" if that is not plainly its last member.

    ``usage_key``: how it is written, with the comma before and the brace behind.
    """
    at: int = rfind(read, usage_key)
    if at < 0 or read[-len(_COUNTED_END) :] != _COUNTED_END:
        return b""
    if find_first_of(read, b"{}", at + len(usage_key)) != len(read) - len(_COUNTED_END):
        return b""  # it has members of its own, or ends before
    body = read[len(LINES[len(read)]) : at]
    return b"%x\r\n%b}\n\n\r\n" % (len(body) + len(b"}\n\n"), body)


def has_piece(data: bytes) -> bool:
    """Tell whether there is any of an answer in ``data``: text that is not empty."""
    at = find(data, _CONTENT)
    while at >= 0:
        at += len(_CONTENT)
        if data[at : at + 1] not in (b'"', b""):
            return True
        at = find(data, _CONTENT, at)
    return _PIECE.search(data) is not None
