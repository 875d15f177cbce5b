"""A header that comes twice: one value where that loses nothing, else a refusal.

Which of two different keys or types is meant is anybody's guess, and a proxy in front may have
checked the other one.
"""

from __future__ import annotations

from gateway.dataplane.http.refusals import malformed

# Two lines of these are one list (RFC 9110 section 5.3), and the list is what is judged.
_LISTS = (b"transfer-encoding", b"content-encoding")
_SINGLE = {
    b"authorization": "Authorization",
    b"content-type": "Content-Type",
    b"idempotency-key": "Idempotency-Key",
    b"x-api-key": "x-api-key",
    b"x-forebay-tier": "x-forebay-tier",
}


def join_repeated(name: bytes, first: bytes, second: bytes) -> bytes:
    """Return what a header's two values come to; of a header that we do not act on, the first.

    Raises :class:`gateway.errors.InvalidRequestError` for a second ``host``, and for different
    values of a header that has one. The same value twice is that value: proxies that add what is
    there already make such requests, and nothing in them is ambiguous.
    """
    if name in _LISTS:
        return b"%b, %b" % (first, second)
    if name == b"host":  # RFC 9112 section 3.2: whatever the values
        raise malformed("a request has exactly one Host header")
    if name in _SINGLE and first != second:
        raise malformed(f"it has two {_SINGLE[name]} headers with different values")
    return first
