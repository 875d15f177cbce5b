"""What goes wrong between the pages and the control API.

::

    ControlError
    ├── ControlUnreachableError  no connection, or no answer in time
    ├── ControlUnreadableError   an answer that is not what the contract says
    └── ControlRefusedError      an error answer, with its status and sentence
        └── SessionRefusedError  401: the session is unknown, expired or ended
"""

from __future__ import annotations

import httpx
import msgspec


class ControlError(Exception):
    """The control API did not give what was asked for; the text is fit for a page."""

    @property
    def page_status(self) -> int:
        """Return the HTTP status of a page that could not do what it was asked for."""
        return 503


class ControlUnreachableError(ControlError):
    """No connection, or no answer in time."""


class ControlUnreadableError(ControlError):
    """The answer does not have the shape that the contract promises."""


class ControlRefusedError(ControlError):
    """An error answer of the control API."""

    def __init__(self, status: int, message: str, retry_after_seconds: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_seconds = retry_after_seconds

    @property
    def page_status(self) -> int:
        """Return the API's own status where it is about what was asked."""
        return self.status if self.status < 500 else 503


class SessionRefusedError(ControlRefusedError):
    """401: not signed in, or no longer."""


def read_refusal(answer: httpx.Response) -> ControlRefusedError:
    """Return the error that an error answer is, with its sentence if it has one."""
    message = f"The control API answered with status {answer.status_code}."
    try:
        error = msgspec.json.decode(answer.content).get("error")
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            message = error["message"]
    except (msgspec.DecodeError, AttributeError):
        pass  # not our error shape (a proxy's page, say): the status alone has to do
    retry_after = answer.headers.get("retry-after", "")
    seconds = int(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    kind = SessionRefusedError if answer.status_code == 401 else ControlRefusedError
    return kind(answer.status_code, message, seconds)
