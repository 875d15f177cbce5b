"""The two cookies: the member's session, and the nonce of the login form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response

_SESSION = "forebay_session"
_LOGIN = "forebay_login"
_LOGIN_SECONDS = 3600
_TOKEN = re.compile(r"[!-~]{1,512}")  # what may stand in the Authorization header we send on


@dataclass(frozen=True)
class Cookies:
    """Reads and writes our cookies: HttpOnly, SameSite=Strict, this host only.

    ``is_secure`` is for pages behind TLS: the cookies are then sent over TLS alone, under the
    ``__Host-`` prefix that browsers guard. Over plain HTTP browsers would drop such cookies.
    """

    is_secure: bool

    def find_session(self, request: Request) -> str | None:
        """Return the session token that the browser sent, if it could be one."""
        token = request.cookies.get(self._name(_SESSION), "")
        return token if _TOKEN.fullmatch(token) else None

    def set_session(
        self, response: Response, token: str, expires_at: datetime, now: datetime
    ) -> None:
        """Hand the session token to the browser until it expires."""
        seconds = max(0, int((expires_at - now).total_seconds()))
        self._set(response, _SESSION, token, seconds)

    def clear_session(self, response: Response) -> None:
        """Make the browser forget the session."""
        self._set(response, _SESSION, "", 0)

    def find_login_nonce(self, request: Request) -> str | None:
        """Return the nonce of the login form that this browser was shown."""
        return request.cookies.get(self._name(_LOGIN)) or None

    def set_login_nonce(self, response: Response, nonce: str) -> None:
        """Remember the nonce of a login form."""
        self._set(response, _LOGIN, nonce, _LOGIN_SECONDS)

    def clear_login_nonce(self, response: Response) -> None:
        """Forget the nonce after a login."""
        self._set(response, _LOGIN, "", 0)

    def _name(self, name: str) -> str:
        return f"__Host-{name}" if self.is_secure else name

    def _set(self, response: Response, name: str, value: str, seconds: int) -> None:
        response.set_cookie(
            self._name(name),
            value,
            max_age=seconds,
            path="/",
            secure=self.is_secure,
            httponly=True,
            samesite="strict",
        )
