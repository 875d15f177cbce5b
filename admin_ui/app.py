"""The admin UI as an ASGI application."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from admin_ui.control_client import ControlClient
from admin_ui.cookies import Cookies
from admin_ui.pages.costs import CostsPage
from admin_ui.pages.fleet import FLEET_PATH, FleetPage
from admin_ui.pages.limits import LimitsPage
from admin_ui.pages.login import LoginPages
from admin_ui.pages.overview import OverviewPage
from admin_ui.pages.receipt import ReceiptPage
from admin_ui.pages.shadow import SHADOW_PATH, ShadowPage
from admin_ui.rendering import STATIC_FOLDER, Renderer
from admin_ui.require_session import LOGIN_PATH, STATIC_PATH, RequireSession
from admin_ui.security_headers import SECURITY_HEADERS, SecurityHeaders

_log = logging.getLogger(__name__)


def _utc_now() -> datetime:
    return datetime.now(UTC)


def create_app(
    control_base_url: str,
    *,
    is_secure_cookie: bool = False,
    public_base_url: str = "http://127.0.0.1:8080",
    clock: Callable[[], datetime] = _utc_now,
) -> Starlette:
    """Return the admin UI.

    ``control_base_url`` is the control API's scheme and authority, without ``/api/v1``.
    ``is_secure_cookie`` is for pages that browsers reach over TLS only. ``public_base_url`` is the
    data plane's address as callers know it: it is shown in the example of a first request.
    ``clock`` tells the time, in UTC; it decides which day is today.
    """
    control = ControlClient(control_base_url)
    cookies = Cookies(is_secure=is_secure_cookie)
    renderer = Renderer()
    login = LoginPages(control=control, cookies=cookies, renderer=renderer, clock=clock)
    overview = OverviewPage(
        control=control, renderer=renderer, clock=clock, public_base_url=public_base_url.rstrip("/")
    )
    receipt = ReceiptPage(control=control, renderer=renderer)
    fleet = FleetPage(control=control, renderer=renderer, clock=clock)
    costs = CostsPage(control=control, renderer=renderer, clock=clock)
    shadow = ShadowPage(control=control, renderer=renderer, clock=clock)
    limits = LimitsPage(control=control, renderer=renderer, clock=clock)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with control:
            yield

    return Starlette(
        routes=[
            Route("/", overview.show),
            Route("/requests/{request_id}", receipt.show),
            Route(FLEET_PATH, fleet.show),
            Route(f"{FLEET_PATH}/replicas/{{replica_id}}", fleet.change, methods=["POST"]),
            Route("/limits", limits.show),
            Route("/costs", costs.show),
            Route(SHADOW_PATH, shadow.show),
            Route(SHADOW_PATH, shadow.change, methods=["POST"]),
            Route(LOGIN_PATH, login.show),
            Route(LOGIN_PATH, login.sign_in, methods=["POST"]),
            Route("/logout", login.sign_out, methods=["POST"]),
            Mount(STATIC_PATH, StaticFiles(directory=STATIC_FOLDER)),
        ],
        middleware=[
            Middleware(SecurityHeaders),
            Middleware(RequireSession, control=control, cookies=cookies, renderer=renderer),
        ],
        exception_handlers={
            HTTPException: _http_error_page(renderer),
            Exception: _crash_page(renderer),
        },
        lifespan=lifespan,
    )


def _http_error_page(renderer: Renderer) -> Callable[[Request, Exception], Response]:
    def answer(_: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        if status == 404:
            title, message = "Page not found", "There is no page at this address."
        elif status == 405:
            title, message = "Not possible", "This page cannot be used that way."
        else:
            title, message = "Something went wrong", f"The request ended with status {status}."
        return renderer.error_page(status=status, title=title, message=message)

    return answer


def _crash_page(renderer: Renderer) -> Callable[[Request, Exception], Response]:
    def answer(request: Request, error: Exception) -> Response:
        # The server logs the traceback as it re-raises; here only where it happened.
        _log.error("the page %s failed: %s", request.url.path, type(error).__name__)
        response = renderer.error_page(
            status=500,
            title="Something went wrong on our side",
            message="The page could not be made. The log of the admin UI says why.",
        )
        # This answer is made outside the middleware that adds them.
        response.headers.update(SECURITY_HEADERS)
        response.headers["cache-control"] = "no-store"
        return response

    return answer
