"""What the control API refuses, with the HTTP status of each refusal.

::

    ApiError
    ├── InvalidRequestError      400  the request cannot be understood or breaks a rule
    ├── UnauthenticatedError     401  no token, or one that opens nothing
    ├── ForbiddenError           403  the token does not reach this far
    ├── NotFoundError            404  no such thing
    ├── ConflictError            409  at odds with what exists
    ├── TooManyAttemptsError     429  wait, then try again
    ├── BusyError                503  as much is being computed as may be at once
    └── UnavailableError         503  the database cannot be reached

The body is OpenAI's: ``{"error": {"message", "type", "param", "code"}}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """A refusal; ``message`` is what the client reads, ``param`` the field it is about."""

    status = 500
    type = "server_error"
    code = "internal_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers that go with the refusal."""
        return {}


class InvalidRequestError(ApiError):
    """The request cannot be understood or breaks a rule."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_request"


class UnauthenticatedError(ApiError):
    """No token, or one that opens nothing."""

    status = 401
    type = "authentication_error"
    code = "unauthenticated"

    @property
    def headers(self) -> Mapping[str, str]:
        """RFC 9110, 11.6.1: a 401 names the scheme."""
        return {"www-authenticate": "Bearer"}


class ForbiddenError(ApiError):
    """The token does not reach this far."""

    status = 403
    type = "permission_error"
    code = "forbidden"


class NotFoundError(ApiError):
    """No such thing."""

    status = 404
    type = "invalid_request_error"
    code = "not_found"


class ConflictError(ApiError):
    """At odds with what exists."""

    status = 409
    type = "invalid_request_error"
    code = "conflict"


class _ComeBackError(ApiError):
    """Refused for now, with the time after which it is worth trying again."""

    def __init__(self, message: str, *, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds

    @property
    def headers(self) -> Mapping[str, str]:
        """When to come back."""
        return {"retry-after": str(self.retry_after_seconds)}


class TooManyAttemptsError(_ComeBackError):
    """Wait, then try again."""

    status = 429
    type = "rate_limit_error"
    code = "too_many_attempts"


class BusyError(_ComeBackError):
    """As much is being computed as may be at once."""

    status = 503
    type = "server_error"
    code = "reports_busy"


class UnavailableError(ApiError):
    """The database cannot be reached."""

    status = 503
    type = "server_error"
    code = "database_unavailable"

    @property
    def headers(self) -> Mapping[str, str]:
        """Databases that restart are back within seconds."""
        return {"retry-after": "2"}


def error_body(*, message: str, type_: str, param: str | None, code: str | None) -> dict[str, Any]:
    """Return the one shape of every error answer."""
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}
