"""What is refused before there is a request that a step could judge."""

from __future__ import annotations

from gateway.errors import (
    HeadersTooLargeError,
    InvalidRequestError,
    MethodNotAllowedError,
    SlowRequestError,
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
