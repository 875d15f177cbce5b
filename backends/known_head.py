"""The head of a message, known from one before it on the same line.

Who keeps a connection sends the same head again and again; only its ``content-length`` differs. What
a parser has made of a head holds for the same bytes with another length: the parser need not see
them. Each byte but the digits is compared, so what differs in any other way is parsed anew.
"""

from __future__ import annotations

import re

from stringzilla import find

_MOST_BYTES = 8192  # of a head that is kept
_MOST_DIGITS = 18  # below 64 bits, where parsers give up
_split_at_length = re.compile(
    rb"(\r\ncontent-length:[ \t]*)([0-9]{1,%d})(?=\r\n)" % _MOST_DIGITS, re.IGNORECASE
).split


class KnownHead:
    """A head's bytes around the digits of its length, and its headers as they were parsed."""

    __slots__ = ("_after", "_after_bytes", "_before", "_digits_at", "_headers")

    def __init__(self, before: bytes, after: bytes, headers: dict[bytes, bytes]) -> None:
        self._before, self._after = before, after
        self._digits_at, self._after_bytes = len(before), len(after)
        self._headers = headers

    def match(self, data: bytes) -> tuple[dict[bytes, bytes], int, bytes] | None:
        """Return the headers, the body's length, and what of the body is in ``data`` already.

        None if ``data`` does not begin with this head, or holds more than its message.
        """
        # Slices that are compared: a call of ``startswith`` or ``bytes.find`` costs twice as much.
        begin = self._digits_at
        if data[:begin] != self._before:
            return None
        end = find(data, b"\r", begin, begin + _MOST_DIGITS + 1)
        digits = data[begin:end]
        if not digits.isdigit():
            return None
        behind = end + self._after_bytes
        if data[end:behind] != self._after:
            return None
        length = int(digits)
        body = data[behind:]
        if len(body) > length:
            return None
        headers = self._headers.copy()
        headers[b"content-length"] = digits
        return headers, length, body


def learn_head(data: bytes, headers: dict[bytes, bytes]) -> KnownHead | None:
    """Return what tells the head of ``data`` again; None if it is none of a plain length.

    ``data`` begins where a message does, and ``headers`` are what a parser has found in its head.
    """
    length = headers.get(b"content-length")
    if length is None or b"transfer-encoding" in headers or data[:1] in (b"\r", b"\n"):
        return None
    head_bytes = data.find(b"\r\n\r\n", 0, _MOST_BYTES) + 4
    if head_bytes < 4:
        return None
    parts = _split_at_length(data[:head_bytes])
    if len(parts) != 4 or parts[2] != length or len(data) - head_bytes > int(length):
        return None
    return KnownHead(parts[0] + parts[1], parts[3], headers.copy())
