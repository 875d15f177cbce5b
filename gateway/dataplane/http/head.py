"""Request and reply heads: header access, and the bytes that a reply begins with."""

from __future__ import annotations

import time
from email.utils import formatdate
from http import HTTPStatus

HeaderList = list[tuple[str, str]]

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus
}


class RequestHeaders:
    """A request's headers by lower-case name; of a repeated one, the first."""

    __slots__ = ("_raw",)

    def __init__(self, raw: dict[bytes, bytes]) -> None:
        self._raw = raw

    def get(self, name: str) -> str | None:
        """Return a header's value without the space around it; None if absent."""
        value = self._raw.get(name.encode())
        return None if value is None else value.decode("latin-1")

    def __contains__(self, name: str) -> bool:
        return name.encode() in self._raw


class Clock:
    """The ``date`` line of a reply, made anew once a second."""

    __slots__ = ("_line", "_second")

    def __init__(self) -> None:
        self._second = 0
        self._line = ""

    def date_line(self) -> str:
        """Return the line for now (RFC 9110 section 6.6.1)."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._line = f"date: {formatdate(second, usegmt=True)}\r\n"
        return self._line


def reply_head(status: int, headers: HeaderList, *, framing: str, date_line: str) -> bytes:
    """Return a reply's head; ``framing`` holds its whole lines about length and connection.

    Header values are ours or checked where they come from; a line break in one would be a fault
    of ours and is refused with ValueError rather than sent.
    """
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if lines.count("\n") != len(headers):
        raise ValueError("a header value holds a line break")
    return f"{_STATUS_LINES[status]}{lines}{date_line}{framing}\r\n".encode("latin-1")
