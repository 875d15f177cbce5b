"""Signing in and out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from admin_ui.control_client import ControlClient
from admin_ui.control_errors import ControlError, ControlRefusedError, SessionRefusedError
from admin_ui.cookies import Cookies
from admin_ui.csrf import csrf_token, is_genuine, new_nonce
from admin_ui.forms import FormRefusedError, read_form
from admin_ui.rendering import Renderer
from admin_ui.require_session import get_signed_in, to_login

_NOTICES = {
    "expired": "Your session has ended. Sign in again.",
    "signed_out": "You are signed out.",
    "signed_out_here": (
        "You are signed out in this browser. The control API could not be told, so the session "
        "itself ends when it expires."
    ),
}
_STALE_FORM = "This form had gone stale. Please try again."
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoginPages:
    """The login form and what its button does."""

    control: ControlClient
    cookies: Cookies
    renderer: Renderer
    clock: Callable[[], datetime]

    async def show(self, request: Request) -> Response:
        """GET /login: the form; a member with a valid session goes straight to the figures."""
        token = self.cookies.find_session(request)
        if token is not None:
            try:
                await self.control.get_member(token)
                return RedirectResponse("/", status_code=303)
            except ControlError:
                pass  # the form is the answer: signing in will say what is wrong
        notice = _NOTICES.get(request.query_params.get("notice", ""))
        return self._form(request, notice=notice)

    async def sign_in(self, request: Request) -> Response:
        """POST /login: a session for the right email and password, else the form with a reason."""
        try:
            form = await read_form(request)
        except FormRefusedError as error:
            return self._form(request, status=400, problem=str(error))
        email = form.get("email", "").strip()
        if not is_genuine(request, form, self.cookies.find_login_nonce(request)):
            return self._form(request, status=403, problem=_STALE_FORM, email=email)
        if not email or not form.get("password"):
            return self._form(
                request, status=400, problem="Enter your email and your password.", email=email
            )
        try:
            session = await self.control.sign_in(email, form["password"])
        except ControlError as error:
            return self._refused(request, error, email)
        response = RedirectResponse("/", status_code=303)
        self.cookies.set_session(response, session.token, session.expires_at, self.clock())
        self.cookies.clear_login_nonce(response)
        return response

    async def sign_out(self, request: Request) -> Response:
        """POST /logout: end the session, at the control API and in the browser."""
        signed_in = get_signed_in(request)
        try:
            form = await read_form(request)
        except FormRefusedError:
            form = {}
        if not is_genuine(request, form, signed_in.token):
            return self.renderer.error_page(
                status=403,
                title="This form is no longer valid",
                message="You are still signed in. Reload the page and sign out again.",
                member=signed_in.member,
                csrf_token=signed_in.csrf_token,
            )
        notice = "signed_out"
        try:
            await self.control.sign_out(signed_in.token)
        except SessionRefusedError:
            pass  # it ended in between: what was wanted
        except ControlError as error:
            _log.warning("a session could not be ended at the control API: %s", error)
            notice = "signed_out_here"
        response = to_login(notice)
        self.cookies.clear_session(response)
        return response

    def _refused(self, request: Request, error: ControlError, email: str) -> Response:
        if isinstance(error, SessionRefusedError):
            problem = "The email or the password is wrong."
            return self._form(request, status=401, problem=problem, email=email)
        if isinstance(error, ControlRefusedError) and error.status == 429:
            wait = _wait_text(error.retry_after_seconds)
            response = self._form(
                request, status=429, problem=f"Too many attempts. Try again {wait}.", email=email
            )
            if error.retry_after_seconds is not None:
                response.headers["retry-after"] = str(error.retry_after_seconds)
            return response
        if isinstance(error, ControlRefusedError) and error.status < 500:
            return self._form(request, status=400, problem=str(error), email=email)
        _log.warning("signing in failed: %s", error)
        problem = f"{error} Check that the control plane is running, then try again."
        return self._form(request, status=503, problem=problem, email=email)

    def _form(
        self,
        request: Request,
        *,
        status: int = 200,
        notice: str | None = None,
        problem: str | None = None,
        email: str = "",
    ) -> Response:
        # One nonce a browser: a second tab's form must not make the first one's stale.
        nonce = self.cookies.find_login_nonce(request) or new_nonce()
        response = self.renderer.page(
            "login.html",
            status=status,
            csrf_token=csrf_token(nonce),
            notice=notice,
            problem=problem,
            email=email,
        )
        self.cookies.set_login_nonce(response, nonce)
        return response


def _wait_text(seconds: int | None) -> str:
    if seconds is None:
        return "in a few minutes"
    if seconds < 90:
        return "in 1 second" if seconds == 1 else f"in {seconds} seconds"
    return f"in {-(-seconds // 60)} minutes"
