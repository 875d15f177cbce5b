"""Request and reply heads: header names, and the bytes that a reply begins with.

Headers stay bytes on the request path. A request's are a dictionary by lower-case name (of a
repeated one, the first); a reply's are whole lines, most of them made once.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

RequestHeaders = dict[bytes, bytes]
HeaderLines = bytes  # "name: value\r\n", any number of times

STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


def header_lines(headers: Iterable[tuple[str, str]]) -> HeaderLines:
    """Return header lines.

    Values are ours or checked where they come from; a line break in one would be a fault of ours
    and is refused with ValueError rather than sent.
    """
    lines = [f"{name}: {value}" for name, value in headers]
    if any("\n" in line or "\r" in line for line in lines):
        raise ValueError("a header value holds a line break")
    return "".join([f"{line}\r\n" for line in lines]).encode("latin-1")
