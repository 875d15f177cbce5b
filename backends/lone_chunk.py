"""A chunk of a reply's body that is a read of its own, told by its bytes alone.

An engine that streams at its own pace sends each frame as one chunk (RFC 9112, section 7.1), and
each arrives as one read: ``1a\\r\\n…\\r\\n``. For a read of so many bytes there is one length that it can
begin with, if it is such a chunk. Where the parser stands between two chunks, a read that begins so
is one, whatever is in it, if it ends with ``\\r\\n``; the parser need not see it.
"""

from __future__ import annotations

MOST_BYTES = 4096  # larger reads are few


def _make_line(read_bytes: int) -> bytes:
    """Return the line of a chunk that takes ``read_bytes`` in all; b"" if none does."""
    for digits in range(1, 4):
        line = b"%x\r\n" % max(read_bytes - digits - 4, 0)
        if len(line) == digits + 2 and read_bytes > digits + 4:
            return line
    return b""


# By the bytes of a read: the line that it begins with if it is a chunk; b"" if it cannot be one.
LINES = tuple(_make_line(read_bytes) for read_bytes in range(MOST_BYTES))


def is_lone_chunk(read: bytes, chunk: bytes) -> bool:
    """Tell whether a parser that found ``chunk`` in ``read`` stood between two chunks.

    A CR inside, or less than the digits of a line, might be another chunk's beginning.
    """
    line = LINES[len(read)] if len(read) < MOST_BYTES else b""
    return (
        line != b""
        and read.startswith(line)
        and read[len(line) : -2] == chunk
        and b"\r" not in chunk
        and len(chunk) > 3
    )
