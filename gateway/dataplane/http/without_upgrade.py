"""A request's head again, without its wish for another protocol.

A server may ignore ``upgrade`` (RFC 9110 section 7.8). llhttp does not: it takes the request to end
with its head and stops there, so another parser is given the head once more, and then the body.
"""

from __future__ import annotations

from gateway.dataplane.http.head import RequestHeaders


def head_without_upgrade(
    method: str, target: bytes, version: str, headers: RequestHeaders
) -> bytes:
    """Return the head. ``headers`` hold the first of a repeated one, which is what all else reads.

    That loses nothing of the body's length: the parser that was there before refuses a second
    ``content-length``, and anything after a ``transfer-encoding`` of chunks.
    """
    request_line = b"%b %b HTTP/%b\r\n" % (method.encode(), target, version.encode())
    lines = [b"%b: %b\r\n" % (name, headers[name]) for name in headers if name != b"upgrade"]
    return b"%b%b\r\n" % (request_line, b"".join(lines))
