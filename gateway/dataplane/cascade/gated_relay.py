"""A stream that is held back until it is decided whether the client gets it.

Decided by the first tokens, by the stream's end, or once the policy's time since the first token is
over. Nothing was sent till then, so whatever fails is an attempt that failed, and a switch is unseen.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from billing.usage.event import RequestStatus
from gateway.dataplane.ended_errors import BudgetEndedError, LowConfidenceError
from gateway.dataplane.relay import HELD_BYTES, StreamRelay

if TYPE_CHECKING:
    from backends.engine_connection import EngineConnection
    from backends.errors import BackendError
    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.cascade.plan import Cascade
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.http.head import HeaderLines
    from gateway.dataplane.plane import DataPlane
    from gateway.dataplane.served_route import ServedRoute
    from gateway.dataplane.stream_editor import StreamEditor
    from gateway.errors import ApiError
    from routing.complexity.confidence import FirstTokens


class GatedRelay(StreamRelay):
    """Relays one stream once it is decided to; else :meth:`run` raises LowConfidenceError."""

    __slots__ = ("_cascade", "_held_since", "_plane", "_tokens")

    def __init__(
        self,
        plane: DataPlane,
        cascade: Cascade,
        request: ActiveRequest,
        connection: EngineConnection,
        *,
        editor: StreamEditor,
        tokens: FirstTokens,
        route: ServedRoute,
        exchange: HttpExchange,
        headers: HeaderLines,
    ) -> None:
        super().__init__(
            request,
            connection,
            editor=editor,
            max_frame_bytes=plane.config.max_frame_bytes,
            route=route,
            exchange=exchange,
            headers=headers,
        )
        self._plane = plane
        self._cascade = cascade
        self._tokens = tokens  # that the editor adds to
        self._held_since: float | None = None  # loop time; when the first token came

    async def _relay_frames(self) -> bytes:
        try:
            is_over = await self._hold_until_ready()
        except BudgetEndedError:  # for what there is, there was money
            await self._send_held()
            raise
        finally:
            self._request.is_held_back = False
        if self._editor.error is not None or (is_over and not self._editor.is_finished):
            return self._held  # it has failed
        if self._held_since is not None:
            await self._cascade.judge(
                self._plane,
                self._request,
                self._tokens,
                usage=self._editor.usage.total(),
                held_since=self._held_since,
                is_whole=is_over,
            )
            self._headers += self._cascade.line
        if is_over:
            if self._editor.has_content:
                self._request.note_first_token()
            return self._held
        await self._send_held()
        return await super()._relay_frames()

    async def _hold_until_ready(self) -> bool:
        """Keep what comes until there is enough to decide by; tell whether it was all."""
        connection, aligner, editor = self._connection, self._aligner, self._editor
        deadline: float | None = None
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    data = await connection.read()
            except TimeoutError:
                return False
            frames = aligner.feed(data) if data else aligner.finish()
            if frames:
                self._held += editor.edit(frames, is_cut=not data)
            if deadline is None and (editor.has_content or self._tokens.count):
                deadline = self._note_first_token() + self._cascade.policy.decide_ms / 1000
            if not data or editor.is_over:
                return True
            if self._tokens.is_complete or len(self._held) >= HELD_BYTES:
                return False
            if editor.has_content and not self._tokens.count:
                return False  # an engine that tells none with the first will not with the next

    def _note_first_token(self) -> float:
        """Note that the engine has begun, which its client does not see yet; return when."""
        self._held_since = now = self._request.clock()
        self._request.note_engine_began()
        self._request.is_held_back = True  # no idle engine: it has the policy's time and no more
        return now

    async def _send_held(self) -> None:
        if not self._editor.has_content:
            return
        self._request.note_first_token()
        if not self._exchange.has_begun:
            self._exchange.begin_stream(200, self._headers)
        self._has_sent = True
        out, self._held = self._held, b""
        if self._exchange.send(out):
            await self._wait_for_client()

    async def _end_broken(self, error: BackendError) -> None:
        if isinstance(error, LowConfidenceError):
            raise error
        await super()._end_broken(error)

    def _end_with_error(
        self, error: ApiError, status: RequestStatus, last_frames: bytes = b""
    ) -> None:
        if not self._has_sent:  # though there was content: another engine may give all of it
            self._request.conclude(status, error.status, error_code=error.code)
            raise error
        super()._end_with_error(error, status, last_frames)
