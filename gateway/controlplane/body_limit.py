"""How much a client may send."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """Refuses bodies above ``max_bytes`` with 413, before reading them where their length is told.

    Paths that begin as one of ``uploads`` says have that limit, where it is the larger. The refusal
    is raised where the body is read, so that it gets the API's error shape.
    """

    def __init__(
        self, app: ASGIApp, max_bytes: int, uploads: Mapping[str, int] | None = None
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._uploads = uploads or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = max(
            self._max_bytes,
            *(size for begin, size in self._uploads.items() if scope["path"].startswith(begin)),
            0,
        )
        declared = dict(scope["headers"]).get(b"content-length", b"")
        is_too_long = declared.isdigit() and int(declared[:20]) > limit
        received = 0

        async def receive_within_limit() -> Message:
            nonlocal received
            if is_too_long:
                raise HTTPException(413)
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise HTTPException(413)
            return message

        await self._app(scope, receive_within_limit, send)
