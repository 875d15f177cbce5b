"""The control API and the admin UI on one port: ``/api/…`` is the API's, all else the UI's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

_API_PATH = "/api"


def serve_side_by_side(control_api: Starlette, admin_ui: Starlette) -> ASGIApp:
    """Return one application of both, with the lifespans of both."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for app in (control_api, admin_ui):
                await stack.enter_async_context(app.router.lifespan_context(app))
            yield

    # Speaks the lifespan protocol for both; it serves no request.
    lifespans = Starlette(lifespan=lifespan)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespans(scope, receive, send)
            return
        path = scope["path"]
        is_api = path == _API_PATH or path.startswith(f"{_API_PATH}/")
        await (control_api if is_api else admin_ui)(scope, receive, send)

    return serve
