"""The one error contract: what a client is told, with which status, in OpenAI's shape.

::

    ApiError
    ├── InvalidRequestError         400  malformed, wrong type, wrong content type
    ├── AuthenticationError         401  no, unknown, revoked or expired key
    ├── BudgetExhaustedError        402  a budget or the credit is used up; names it and its reset
    ├── PermissionDeniedError       403  a blocked key, a route the key may not use
    ├── NotFoundError               404  unknown model, path or request
    ├── MethodNotAllowedError       405
    ├── SlowRequestError            408  the request did not come in time
    ├── IdempotencyConflictError    409  an Idempotency-Key that stands for something else
    ├── BodyTooLargeError           413
    ├── HeadersTooLargeError        431
    ├── RateLimitedError            429  names the limit that struck (Retry-After)
    ├── TransferCodingError         501  a transfer coding beside chunked
    ├── EngineFailedError           502  the engine failed or answered nonsense
    ├── UnavailableError            503  starting, draining, journal unavailable (Retry-After)
    └── EngineTooSlowError          504
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

ECHOED_CHARACTERS = 200

_encode = msgspec.json.Encoder().encode


class ApiError(Exception):
    """A refusal or failure as the client reads it."""

    status = 500
    type = "api_error"
    default_code: str | None = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_seconds: float | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        """``details`` become members of the error object beside the four that all have.

        What ``message`` repeats of what a client gave goes through :func:`shorten`; code and param,
        which may be an engine's or a member's name, are shortened here.
        """
        super().__init__(message)
        self.message = message
        self.details = details
        self.lines = b""  # whole header lines of the step that refuses, beside our own
        self.code = shorten(code) if code else self.default_code
        self.param = None if param is None else shorten(param)
        self.retry_after_seconds = retry_after_seconds

    def body(self) -> bytes:
        """Return the JSON body ``{"error": {"message", "type", "param", "code"}}``."""
        return error_body(self.message, self.type, self.param, self.code, self.details)

    def headers(self) -> list[tuple[str, str]]:
        """Return the headers that belong to this error."""
        if self.retry_after_seconds is None:
            return []
        return [
            ("retry-after", str(max(1, math.ceil(self.retry_after_seconds)))),
            ("retry-after-ms", str(max(1, math.ceil(self.retry_after_seconds * 1000)))),
        ]


class InvalidRequestError(ApiError):
    """The request is malformed; sending it again will not help."""

    status = 400
    type = "invalid_request_error"
    default_code = "invalid_request"


class AuthenticationError(ApiError):
    """No key, or none that we know, or one that no longer holds."""

    status = 401
    type = "authentication_error"
    default_code = "invalid_api_key"

    def headers(self) -> list[tuple[str, str]]:
        """Name the scheme, as RFC 9110 section 11.6.1 asks of every 401."""
        return [("www-authenticate", 'Bearer realm="forebay"')]


class PermissionDeniedError(ApiError):
    """The key is known and may not do this."""

    status = 403
    type = "permission_error"
    default_code = "permission_denied"


class NotFoundError(ApiError):
    """There is no such model, path or request."""

    status = 404
    type = "invalid_request_error"
    default_code = "not_found"


class MethodNotAllowedError(ApiError):
    """The path exists, but not with this method; ``Allow`` says with which."""

    status = 405
    type = "invalid_request_error"
    default_code = "method_not_allowed"

    def __init__(self, message: str, *, allowed: str) -> None:
        super().__init__(message)
        self._allowed = allowed

    def headers(self) -> list[tuple[str, str]]:
        """Name the allowed methods, as RFC 9110 section 15.5.6 asks."""
        return [("allow", self._allowed)]


class BudgetExhaustedError(ApiError):
    """No money is left, or (with ``retry_after_seconds``) what is left is held by running requests.

    Without it sending again helps only after a reset or a top-up.
    """

    status = 402
    type = "insufficient_quota"
    default_code = "budget_exhausted"

    def headers(self) -> list[tuple[str, str]]:
        """Tell SDKs not to try again by themselves what only a reset or a top-up helps."""
        useless = [("x-should-retry", "false")] if self.retry_after_seconds is None else []
        return [*super().headers(), *useless]


class RateLimitedError(ApiError):
    """A limit struck. Without ``retry_after_seconds`` no waiting will help."""

    status = 429
    type = "rate_limit_error"
    default_code = "rate_limit_exceeded"

    def headers(self) -> list[tuple[str, str]]:
        """Tell SDKs not to try again what can never fit."""
        never = [("x-should-retry", "false")] if self.retry_after_seconds is None else []
        return [*super().headers(), *never]


class IdempotencyConflictError(ApiError):
    """The request's Idempotency-Key stands for another request, or for a reply that is not kept."""

    status = 409
    type = "invalid_request_error"
    default_code = "idempotency_key_reused"

    def headers(self) -> list[tuple[str, str]]:
        """Ask the official SDKs, which retry every 409, not to: the answer would be the same."""
        return [("x-should-retry", "false")]


class BodyTooLargeError(ApiError):
    """The body is over the configured limit."""

    status = 413
    type = "invalid_request_error"
    default_code = "body_too_large"


class SlowRequestError(ApiError):
    """The client stopped in the middle of its request."""

    status = 408
    type = "invalid_request_error"
    default_code = "request_timeout"


class HeadersTooLargeError(ApiError):
    """The headers are over the limit."""

    status = 431
    type = "invalid_request_error"
    default_code = "headers_too_large"


class TransferCodingError(ApiError):
    """The body comes in a transfer coding that we do not unpack."""

    status = 501
    type = "invalid_request_error"
    default_code = "unsupported_transfer_coding"


class EngineFailedError(ApiError):
    """The engine could not be reached, broke, or answered what we cannot relay."""

    status = 502
    default_code = "engine_failed"


class UnavailableError(ApiError):
    """Not now: try again after ``Retry-After``."""

    status = 503
    default_code = "unavailable"


class EngineTooSlowError(ApiError):
    """The engine was silent for longer than allowed."""

    status = 504
    default_code = "engine_timeout"


def shorten(given: str, most: int = ECHOED_CHARACTERS) -> str:
    """Return what a client, or an engine, gave as an error may repeat it, cut to ``most`` characters."""
    return given if len(given) <= most else f"{given[:most]}…"


def error_body(
    message: str,
    kind: str,
    param: str | None,
    code: str | int | None,
    details: Mapping[str, object] | None = None,
) -> bytes:
    """Return an error object as JSON bytes."""
    error = {"message": message, "type": kind, "param": param, "code": code, **(details or {})}
    return _encode({"error": error})
