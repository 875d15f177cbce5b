"""Request and reply heads: header names, and the bytes that a reply begins with.

Headers stay bytes on the request path. A request's are a dictionary by lower-case name (of a
repeated one, the first); a reply's are whole lines, most of them made once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus

RequestHeaders = dict[bytes, bytes]
HeaderLines = bytes  # "name: value\r\n", any number of times

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class Clock:
    """The ``date`` line of a reply, made anew once a second."""

    __slots__ = ("_line", "_second")

    def __init__(self) -> None:
        self._second = 0
        self._line = b""

    def date_line(self) -> HeaderLines:
        """Return the line for now (RFC 9110 section 6.6.1)."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._line = f"date: {formatdate(second, usegmt=True)}\r\n".encode()
        return self._line


def header_lines(headers: Iterable[tuple[str, str]]) -> HeaderLines:
    """Return header lines.

    Values are ours or checked where they come from; a line break in one would be a fault of ours
    and is refused with ValueError rather than sent.
    """
    lines = [f"{name}: {value}" for name, value in headers]
    if any("\n" in line or "\r" in line for line in lines):
        raise ValueError("a header value holds a line break")
    return "".join([f"{line}\r\n" for line in lines]).encode("latin-1")


def reply_head(
    status: int, headers: HeaderLines, *, framing: HeaderLines, date_line: HeaderLines
) -> bytes:
    """Return a reply's head; ``framing`` holds its lines about length and connection."""
    return b"%b%b%b%b\r\n" % (_STATUS_LINES[status], headers, date_line, framing)
