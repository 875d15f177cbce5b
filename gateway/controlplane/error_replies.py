"""The one table from failures to HTTP answers. Nothing that a client sent is repeated back."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DataError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from gateway.controlplane.database import find_sqlstate, is_out_of_time
from gateway.controlplane.errors import ApiError, InvalidRequestError, UnavailableError, error_body
from gateway.errors import shorten

_log = logging.getLogger(__name__)

_HTTP_MESSAGES = {
    404: ("There is nothing at this address.", "not_found"),
    405: ("This address does not take that method.", "method_not_allowed"),
    413: ("The request body is too large.", "body_too_large"),
}


def install_error_replies(app: FastAPI) -> None:
    """Make ``app`` answer every expected failure in the API's error shape."""
    app.add_exception_handler(ApiError, _answer_api_error)
    app.add_exception_handler(RequestValidationError, _answer_validation_error)
    app.add_exception_handler(HTTPException, _answer_http_exception)
    app.add_exception_handler(DBAPIError, _answer_database_error)
    app.add_exception_handler(PoolTimeoutError, _answer_database_error)


def _reply(error: ApiError) -> Response:
    return JSONResponse(
        error_body(message=error.message, type_=error.type, param=error.param, code=error.code),
        status_code=error.status,
        headers=dict(error.headers),
    )


def _answer_api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)  # noqa: S101 - registered for this class only
    return _reply(error)


def _answer_validation_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it only
    first: Mapping[str, Any] = error.errors()[0]
    param = name_param(first["loc"])
    return _reply(InvalidRequestError(describe_problem(first, param), param=param))


def name_param(location: Sequence[int | str]) -> str | None:
    """Return ``name`` or ``allowed_routes.0`` from pydantic's location; None for the whole body."""
    parts = [str(part) for part in location[1:]]
    return shorten(".".join(parts)) or None  # a member that is not known has the client's own name


def describe_problem(problem: Mapping[str, Any], param: str | None) -> str:
    """Return one sentence about a validation problem, without the value that caused it."""
    kind = problem["type"]
    if kind == "json_invalid":
        return "The request body is not valid JSON."
    if param is None:
        return "The request body must be a JSON object with content type application/json."
    if kind == "missing":
        return f"{param} is required."
    if kind == "extra_forbidden":
        return f"{param} is not a known field."
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{param}: {message[:1].lower()}{message[1:]}."


def _answer_http_exception(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class only
    if error.status_code == 400:
        # FastAPI's: the body could not be read as JSON (bad UTF-8, nested too deep).
        return _reply(InvalidRequestError("The request body cannot be read as JSON."))
    message, code = _HTTP_MESSAGES.get(
        error.status_code, (f"The request ended with status {error.status_code}.", "http_error")
    )
    return JSONResponse(
        error_body(message=message, type_="invalid_request_error", param=None, code=code),
        status_code=error.status_code,
        headers=error.headers,
    )


def _answer_database_error(request: Request, error: Exception) -> Response:
    if isinstance(error, DataError):
        # A character or number that PostgreSQL cannot hold, in a place we do not check ourselves.
        return _reply(InvalidRequestError("A value holds characters that cannot be stored."))
    if is_out_of_time(error):
        return _reply(
            UnavailableError("The query took too long; ask for less.", code="query_too_long")
        )
    if isinstance(error, (OperationalError, PoolTimeoutError)):
        # Type and state only: the driver's text may hold the address.
        _log.warning(
            "database unavailable for %s %s: %s %s",
            request.method,
            request.url.path,
            type(error).__name__,
            find_sqlstate(error) or "",
        )
        return _reply(UnavailableError("The database cannot be reached; try again shortly."))
    raise error
