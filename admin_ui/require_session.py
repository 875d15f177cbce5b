"""The gate before every page: no valid session, no page."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from admin_ui.control_client import ControlClient
from admin_ui.control_errors import ControlError, ControlRefusedError, SessionRefusedError
from admin_ui.control_records import Member
from admin_ui.cookies import Cookies
from admin_ui.csrf import csrf_token
from admin_ui.rendering import Renderer

LOGIN_PATH = "/login"
STATIC_PATH = "/static"
_STATE_KEY = "admin_ui_session"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SignedIn:
    """Who asks, as the control API confirmed for this very request."""

    token: str
    member: Member

    @property
    def csrf_token(self) -> str:
        """Return the token for this session's forms."""
        return csrf_token(self.token)


def get_signed_in(request: Request) -> SignedIn:
    """Return the member whom the gate let through; KeyError on a page that the gate leaves open."""
    signed_in: SignedIn = request.scope["state"][_STATE_KEY]
    return signed_in


def to_login(notice: str | None = None) -> RedirectResponse:
    """Send the browser to the login form, with the name of a sentence to show there."""
    return RedirectResponse(LOGIN_PATH + (f"?notice={notice}" if notice else ""), status_code=303)


def control_failure_page(renderer: Renderer, error: ControlError) -> Response:
    """Return the page for a control API that does not serve us."""
    if isinstance(error, ControlRefusedError) and error.status == 403:
        return renderer.error_page(
            status=403,
            title="Not allowed",
            message=str(error),
            advice="Sign in as a member who may see these figures.",
        )
    answer = renderer.error_page(
        status=503,
        title="The control API is not available",
        message=str(error),
        advice=(
            "Requests to your models are served without it, and their usage is kept. "
            "Check that the control plane is running (its log is in the state directory, under "
            "logs), then reload this page."
        ),
    )
    answer.headers["retry-after"] = "5"
    return answer


class RequireSession:
    """ASGI middleware that guards every path but the login form and the static files.

    It asks the control API on each request, so that a session ended elsewhere ends here at once.
    """

    def __init__(
        self, app: ASGIApp, *, control: ControlClient, cookies: Cookies, renderer: Renderer
    ) -> None:
        self._app = app
        self._control = control
        self._cookies = cookies
        self._renderer = renderer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through with its member, or answer it here."""
        if scope["type"] != "http" or _is_open(scope):
            await self._app(scope, receive, send)
            return
        outcome = await self._admit(Request(scope))
        if isinstance(outcome, Response):
            await outcome(scope, receive, send)
            return
        scope.setdefault("state", {})[_STATE_KEY] = outcome
        await self._app(scope, receive, send)

    async def _admit(self, request: Request) -> SignedIn | Response:
        token = self._cookies.find_session(request)
        if token is None:
            return to_login()
        try:
            return SignedIn(token=token, member=await self._control.get_member(token))
        except SessionRefusedError:
            response = to_login("expired")
            self._cookies.clear_session(response)
            return response
        except ControlError as error:
            _log.warning("a page could not be served: %s", error)
            return control_failure_page(self._renderer, error)


def _is_open(scope: Scope) -> bool:
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path == LOGIN_PATH or path.startswith(STATIC_PATH + "/")
