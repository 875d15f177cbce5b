"""What is refused before there is a request that a step could judge."""

from __future__ import annotations

from gateway.errors import (
    ApiError,
    HeadersTooLargeError,
    InvalidRequestError,
    MethodNotAllowedError,
    SlowRequestError,
    TransferCodingError,
)

MAX_HEAD_BYTES = 64 * 1024


def malformed(reason: object) -> InvalidRequestError:
    """Return the refusal of what is no HTTP/1.1; ``reason`` is the parser's or ours."""
    return InvalidRequestError(f"The request is not valid HTTP: {reason}.", code="malformed_http")


def head_too_large() -> HeadersTooLargeError:
    """Return the refusal of a head over the limit."""
    return HeadersTooLargeError(f"The request's headers are over {MAX_HEAD_BYTES} bytes.")


def too_slow() -> SlowRequestError:
    """Return the refusal of a request that stopped coming."""
    return SlowRequestError("The request came too slowly.")


def no_tunnel() -> MethodNotAllowedError:
    """Return the refusal of a CONNECT, whatever it names."""
    return MethodNotAllowedError(
        "CONNECT is not allowed: this is no proxy.", allowed="GET, HEAD, POST"
    )


def half_closed() -> InvalidRequestError:
    """Return what a client is told that ended its side before its reply; the record says 499."""
    return InvalidRequestError(
        "The client ended its side of the connection before the reply, which counts as leaving:"
        " keep it open until the reply has come.",
        code="client_closed",
    )


def refused_transfer_coding(value: bytes, *, is_old: bool) -> ApiError | None:
    """Return the refusal of a body in this ``transfer-encoding``, or None: in chunks, no more.

    RFC 9112 section 6.1: without chunks last nobody knows where the body ends, and HTTP/1.0
    (``is_old``) has none; another coding below them is one that we do not unpack.
    """
    codings = [coding.strip(b" \t").lower() for coding in value.split(b",")]
    codings = [coding for coding in codings if coding]  # empty members of a list count for nothing
    if is_old:
        return malformed("HTTP/1.0 has no Transfer-Encoding")
    if not codings or codings[-1] != b"chunked" or b"chunked" in codings[:-1]:
        return malformed("chunked must be its last transfer coding, and come once")
    if len(codings) > 1:
        return TransferCodingError("The transfer coding must be chunked alone.")
    return None
