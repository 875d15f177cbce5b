"""An engine's refusals and failures, put into our contract.

What the client did wrong keeps its status and the engine's own sentence. What is between us and the
engine (its auth, an unknown model there) is our fault and says no more than that.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from backends.errors import (
    BackendError,
    BackendTimeoutError,
    EngineAsleepError,
    ReplyCutError,
    ReplyTooLargeError,
)
from billing.usage.event import RequestStatus
from gateway.dataplane.ended_errors import GatewayStoppedError
from gateway.dataplane.serving_table import ServedRoute
from gateway.dataplane.told_errors import read_error_detail
from gateway.errors import (
    ApiError,
    EngineFailedError,
    EngineTooSlowError,
    UnavailableError,
    shorten,
)
from gateway.openai_schema.replies import ErrorDetail

_MAX_MESSAGE = 2000
_RETRY_AFTER_SECONDS = 2.0
_MAX_RETRY_AFTER_SECONDS = 86_400.0
_URL = re.compile(r"https?://[^\s\"']+")  # an engine's own address is nobody's business

_NOT_READY_TYPE = "ServiceUnavailableError"  # vLLM's and the local engine's; says why

# vLLM gives it no code of its own; clients know OpenAI's.
CONTEXT_CODE = "context_length_exceeded"
_CONTEXT = re.compile(r"maximum (?:context|model) length")

# What a code may be made of: it becomes a header's value, and goes into the books.
_is_word = re.compile(r"[\x21-\x7e]+").fullmatch

_NO_ENDPOINT = (404, 405, 501)  # of an engine that serves a model of another kind

# The client's own doing, with the status of our contract (422 never).
_CLIENT_STATUSES = {400: 400, 404: 404, 405: 400, 413: 413, 415: 400, 422: 400, 429: 429}


class EngineRefusalError(ApiError):
    """The engine refused what the client asked; its sentence is passed on."""

    def __init__(self, status: int, detail: ErrorDetail, message: str) -> None:
        code = detail.code if isinstance(detail.code, str) and _is_word(detail.code) else None
        if code is None and status == 400 and _CONTEXT.search(message):
            code = CONTEXT_CODE
        super().__init__(message, code=code or "engine_refused", param=detail.param)
        self.status = status
        self.type = "rate_limit_error" if status == 429 else "invalid_request_error"


def engine_error(
    status: int, body: bytes, headers: dict[bytes, bytes], route: ServedRoute
) -> ApiError:
    """Return the error for an engine's answer with ``status`` other than 200."""
    detail = read_error_detail(body)
    retry_after = _retry_after_seconds(headers)
    own_status = _CLIENT_STATUSES.get(status)
    if status == 404 and not _is_about_request(detail):
        own_status = None  # the engine does not know the path or its model: ours to mend
    if own_status is not None:
        message = public_message(detail, route) or "The engine refused the request."
        refusal = EngineRefusalError(own_status, detail, message)
        if own_status == 429:
            refusal.retry_after_seconds = retry_after or _RETRY_AFTER_SECONDS
        return refusal
    if status == 503:  # no room, or still starting: only the engine knows
        is_own_word = detail.type == _NOT_READY_TYPE
        reason = public_message(detail, route) if is_own_word else None
        sentence = "The engine takes no requests at the moment"
        return UnavailableError(
            f"{sentence}: {reason}" if reason else f"{sentence}.",
            code="engine_unavailable",
            retry_after_seconds=retry_after or _RETRY_AFTER_SECONDS,
        )
    if status == 504:
        return EngineTooSlowError("The engine ran out of time.")
    return EngineFailedError(f"The engine failed (status {status}).")


def lacks_endpoint(status: int, body: bytes, route: ServedRoute) -> bool:
    """Tell an engine without the endpoint from one that misses a model, or a part of the request."""
    if status not in _NO_ENDPOINT:
        return False
    detail = read_error_detail(body)
    return detail.param is None and route.engine_model not in (detail.message or "")


def backend_error(error: BackendError) -> ApiError:
    """Return the error for an exchange that broke."""
    if isinstance(error, GatewayStoppedError):
        return UnavailableError(
            str(error), code="draining", retry_after_seconds=_RETRY_AFTER_SECONDS
        )
    if isinstance(error, EngineAsleepError):
        return UnavailableError(
            str(error), code="engine_asleep", retry_after_seconds=_RETRY_AFTER_SECONDS
        )
    if isinstance(error, BackendTimeoutError):
        return EngineTooSlowError("The engine did not answer in time.")
    if isinstance(error, ReplyTooLargeError):
        return EngineFailedError(str(error), code="reply_too_large")
    if isinstance(error, ReplyCutError):
        return EngineFailedError(
            "The engine's connection ended before the reply was whole.", code="engine_cut"
        )
    return EngineFailedError("The engine's reply could not be read.", code="engine_reply_malformed")


@dataclass(frozen=True, slots=True)
class StreamError:
    """What an engine's error event inside a stream means for the client and the record."""

    error: ApiError
    status: RequestStatus


def stream_error(detail: ErrorDetail, route: ServedRoute) -> StreamError:
    """Return the meaning of an error event: the client's doing (4xx code) or the engine's."""
    code = detail.code
    if isinstance(code, int) and code in _CLIENT_STATUSES:
        message = public_message(detail, route) or "The engine refused the request."
        refusal = EngineRefusalError(_CLIENT_STATUSES[code], detail, message)
        return StreamError(refusal, RequestStatus.REJECTED)
    message = public_message(detail, route) or "The engine failed inside the reply."
    return StreamError(EngineFailedError(message), RequestStatus.FAILED)


def public_message(detail: ErrorDetail, route: ServedRoute) -> str | None:
    """Return the engine's sentence as a client may read it: our model name, no addresses."""
    if not detail.message:
        return None
    message = shorten(detail.message, _MAX_MESSAGE).replace(route.engine_model, route.asked.name)
    return _URL.sub("[address]", message)


def _is_about_request(detail: ErrorDetail) -> bool:
    """Tell a 404 that answers the request (a named part of it) from a wrong path or model."""
    return detail.param not in (None, "model")


def _retry_after_seconds(headers: dict[bytes, bytes]) -> float | None:
    """Return what the engine asks to wait; None if it does not say, or says nothing sensible.

    Seconds or a date (RFC 9110 section 10.2.3); fractions, which some send, are rounded up later.
    """
    value = headers.get(b"retry-after", b"").decode("latin-1").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            at = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = at.timestamp() - time.time()
    return min(seconds, _MAX_RETRY_AFTER_SECONDS) if seconds > 0 else None  # nan is not
