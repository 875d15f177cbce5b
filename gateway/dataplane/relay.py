"""Step 5 for streams: bytes to the client as they come, whole frames at a time.

Nothing is sent before the first piece of the answer itself: frames that only open it are held back,
so that an engine that fails right behind them is still an honest HTTP error, or another engine's
whole answer. The close record is written before the last frames leave. A stream that ends
without ``[DONE]`` and without any ``finish_reason`` was cut: its last event is an error, and no
``[DONE]`` ever follows.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from backends.errors import BackendError, MalformedReplyError, ReplyCutError
from backends.sse import FrameAligner
from billing.budgets.window import window_at
from billing.usage.event import RequestStatus
from gateway.dataplane.active_request import ActiveRequest
from gateway.dataplane.answer import error_event
from gateway.dataplane.ended_errors import BudgetEndedError, ClientGoneError
from gateway.dataplane.engine_errors import backend_error, stream_error
from gateway.dataplane.http.exchange import ClientLeftError
from gateway.dataplane.limit_replies import ended_budget_error
from gateway.dataplane.own_chunks import closing_chunk, length_marker
from gateway.dataplane.plain_frames import DONE_FRAME
from gateway.dataplane.stream_editor import StreamEditor
from gateway.errors import ApiError

if TYPE_CHECKING:
    from backends.engine_connection import EngineConnection
    from gateway.dataplane.http.exchange import ClientLine, HttpExchange
    from gateway.dataplane.http.head import HeaderLines
    from gateway.dataplane.serving_table import ServedRoute
    from gateway.snapshot.model import Budget

_LAST_BYTES_SECONDS = 0.5  # how long the engine may take to close a reply that is done
HELD_BYTES = 64 * 1024  # more before the answer's first piece is no opening any more
_STALLED_SECONDS = 300.0  # a client that takes nothing for so long has left, whatever TCP says


class StreamRelay:
    """Relays one stream; :meth:`run` is called once."""

    __slots__ = (
        "_aligner",
        "_connection",
        "_editor",
        "_ending",
        "_exchange",
        "_has_begun",
        "_has_sent",
        "_headers",
        "_held",
        "_line",
        "_request",
        "_route",
    )

    def __init__(
        self,
        request: ActiveRequest,
        connection: EngineConnection,
        *,
        editor: StreamEditor,
        max_frame_bytes: int,
        route: ServedRoute,
        exchange: HttpExchange,
        headers: HeaderLines,
    ) -> None:
        self._request = request
        self._connection = connection
        self._editor = editor
        self._aligner = FrameAligner(max_frame_bytes)
        self._route = route
        self._exchange = exchange
        self._headers = headers
        self._has_begun = False  # the answer itself, of which the first token was noted
        self._has_sent = False  # a frame of the answer; comments while it waited do not count
        self._held = b""
        self._line: ClientLine | None = None  # for chunks with one frame; None: not yet, or never
        self._ending: bytes | None = None  # the stream's last frames, once they are in
        request.stream_usage = editor.usage

    async def run(self) -> None:
        """Relay until the end, whatever it is, and settle.

        Raises :class:`ApiError` or :class:`BackendError` only while nothing of the answer was sent:
        then another engine can still give it, or the client be told a status.
        """
        if self._connection.headers.get(b"content-encoding", b"identity") != b"identity":
            raise MalformedReplyError("The engine's stream has an encoding we did not ask for.")
        try:
            last_frames = await self._relay_frames()
        except ClientLeftError:
            self._conclude_client_gone()
            return
        except BackendError as error:
            await self._end_broken(error)
            return
        if self._editor.error is not None:
            meaning = stream_error(self._editor.error, self._route)
            self._end_with_error(meaning.error, meaning.status, last_frames)
        elif not self._editor.is_finished:
            await self._end_broken(ReplyCutError("The stream ended without an end."))
        elif self._editor.is_empty and not self._has_sent:
            raise MalformedReplyError("The stream had no answer in it.")
        else:
            await self._end_complete(last_frames)

    async def _relay_frames(self) -> bytes:
        """Relay what comes; return the edited frames that end the stream, not sent yet."""
        while await self._connection.read_until(self._relay, self._pass_on):
            if self._ending is not None:
                return self._ending
            await self._wait_for_client()
        frames = self._aligner.finish()
        return self._held + self._editor.edit(frames, is_cut=True) if frames else self._held

    def _relay(self, data: bytes) -> bool:
        """Relay what one read gave; tell whether that was the end, or the client is to be waited for.

        Called for every piece of every stream, thousands of times a second.
        """
        frames = self._aligner.feed(data)
        if not frames:
            return False
        editor = self._editor
        out = editor.edit(frames)
        if not self._has_begun and editor.has_content:
            self._has_begun = True
            if self._request.first_token_at_us is None:
                self._request.note_first_token()
        if editor.is_over:
            self._ending = self._held + out
            return True
        if out and not self._has_sent:
            out = self._begin(out)
        return self._exchange.send(out) if out else False

    def _pass_on(self, read: bytes) -> bool:
        """Send a read that is one chunk with one plain frame as a chunk; tell whether it is that."""
        line = self._line
        if line is None or line.is_congested or not self._aligner.is_clean:
            return False
        chunk = self._editor.edit_chunk(read)
        if not chunk:
            return False
        line.write(chunk)
        return True

    def _begin(self, out: bytes) -> bytes:
        """Return what is to be sent first, all of it; b"" while the answer has not begun."""
        self._held += out
        if not self._editor.has_content and len(self._held) < HELD_BYTES:
            return b""
        if not self._exchange.has_begun:
            self._exchange.begin_stream(200, self._headers)
        self._has_sent = True
        if self._editor.passes_chunks:
            self._line = self._exchange.passing_line()
        out, self._held = self._held, b""
        return out

    async def _wait_for_client(self) -> None:
        """Let a slow client catch up. Nothing is read meanwhile, so its engine waits too."""
        self._request.is_held_back = True
        try:
            async with asyncio.timeout(_STALLED_SECONDS):
                await self._exchange.drained()
        except TimeoutError:
            self._exchange.abandon()
            raise ClientLeftError from None
        finally:
            self._request.resume()

    async def _end_complete(self, last_frames: bytes) -> None:
        if not self._editor.is_done:
            last_frames += DONE_FRAME  # the answer is whole; clients wait for the mark
        if self._editor.lacks_total:
            last_frames = last_frames.removesuffix(DONE_FRAME) + self._closing() + DONE_FRAME
        guess = self._request.guess
        if guess is not None and guess.has_several:
            guess.cut_off = self._editor.cut_off
        self._conclude(RequestStatus.COMPLETED, 200)
        try:
            self._end_stream(last_frames)
            if not self._connection.is_reusable:  # the reply's own end is still to come
                await asyncio.wait_for(self._connection.read_to_end(), _LAST_BYTES_SECONDS)
        except (ClientLeftError, BackendError, TimeoutError):
            return  # the answer was whole and is settled; the connection is not kept

    def _closing(self) -> bytes:
        """Return the closing counts that the client asked for, of an engine that makes no such chunk."""
        identity = self._request.identity
        return closing_chunk(
            self._editor.latest_frame,
            self._editor.usage.total(),
            endpoint=identity.endpoint,
            model=identity.requested_route,
        )

    async def _end_broken(self, error: BackendError) -> None:
        if isinstance(error, ClientGoneError):
            self._conclude_client_gone()
            return
        if isinstance(error, BudgetEndedError):
            self._end_without_money(error)
            return
        if self._editor.is_finished:  # only the mark or the last chunk's end is missing
            await self._end_complete(self._held)
            return
        if not self._has_sent:
            raise error
        self._end_with_error(backend_error(error), RequestStatus.TRUNCATED)

    def _end_without_money(self, error: BudgetEndedError) -> None:
        """End a stream whose budget has: as if cut by ``max_tokens``, and then say why."""
        resets_at_us = _reset_of(error.budget, self._request)
        told = ended_budget_error(error.budget, resets_at_us=resets_at_us)
        if not self._has_sent:
            self._end_with_error(told, RequestStatus.TRUNCATED)
        marker = length_marker(
            self._editor.latest_frame,
            endpoint=self._request.identity.endpoint,
            model=self._request.identity.requested_route,
            choices=self._editor.usage.choices,
        )
        self._end_with_error(told, RequestStatus.TRUNCATED, marker)

    def _end_with_error(
        self, error: ApiError, status: RequestStatus, last_frames: bytes = b""
    ) -> None:
        if not self._has_sent and not self._editor.has_content:
            self._request.conclude(status, error.status, error_code=error.code)
            raise error
        # Nobody pays for a reply that broke before any of the answer was in it.
        self._conclude(
            RequestStatus.TRUNCATED if self._editor.has_content else RequestStatus.FAILED,
            200,
            error_code=error.code,
        )
        with contextlib.suppress(ClientLeftError):  # nobody is there to be told
            self._end_stream(last_frames + error_event(error))

    def _end_stream(self, last_frames: bytes) -> None:
        if not self._exchange.has_begun:
            self._exchange.begin_stream(200, self._headers)
        self._exchange.end_stream(last_frames)

    def _conclude_client_gone(self) -> None:
        self._conclude(RequestStatus.CLIENT_CLOSED, 499, error_code="client_closed")

    def _conclude(
        self, status: RequestStatus, http_status: int, *, error_code: str | None = None
    ) -> None:
        usage = self._editor.usage.total()
        self._request.conclude(status, http_status, usage=usage, error_code=error_code)
        self._request.settle()


def _reset_of(budget: Budget, request: ActiveRequest) -> int | None:
    return window_at(budget.window, budget.time_zone, request.identity.started_at_us).end_us
