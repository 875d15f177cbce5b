"""The outermost layer of the control API: a request id on every answer, and no bare 500."""

from __future__ import annotations

import logging

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from billing.ids import new_id
from gateway.controlplane.errors import error_body

_log = logging.getLogger(__name__)


class RequestEdge:
    """Gives each request an id, answers what nobody expected, and forbids caching."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = new_id("req")
        is_started = False

        async def send_with_id(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                headers["cache-control"] = "no-store"
                headers["x-content-type-options"] = "nosniff"
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            # The process edge: whatever it is, the client gets the shape and we get the traceback.
            _log.exception("%s %s failed (%s)", scope["method"], scope["path"], request_id)
            if is_started:
                raise
            reply = JSONResponse(
                error_body(
                    message=f"Something failed on our side. Mention {request_id} when you report it.",
                    type_="server_error",
                    param=None,
                    code="internal_error",
                ),
                status_code=500,
            )
            await reply(scope, receive, send_with_id)
