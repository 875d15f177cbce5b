"""An exchange whose reply goes into a recording, for whoever reads it.

The steps of the data plane write to it as to any other. Its client is the recording, which takes
everything at once and never leaves, until the reply is larger than what is kept: from then on it
goes on for the owner's own client alone, at that client's pace, and ends with it.
"""

from __future__ import annotations

import asyncio

from gateway.dataplane.answer import error_event
from gateway.dataplane.http.clock import Clock
from gateway.dataplane.http.exchange import ClientLeftError, HttpExchange
from gateway.dataplane.http.head import HeaderLines
from gateway.dataplane.idempotency.recording import End, Head
from gateway.dataplane.idempotency.store import OwnedEntry
from gateway.errors import ApiError

_CONGESTED_BYTES = 256 * 1024  # not taken yet by the owner's client, of what is not kept
_DONE = b"data: [DONE]\n\n"  # how each whole stream ends, and no other does


class _RecordingLine:
    """The line of an exchange that no socket is behind; nothing is ever written to it."""

    clock: Clock  # for replies that are written

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.is_congested = False

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError


class RecordingExchange(HttpExchange, kw_only=True):
    """The exchange that the request's run is given instead of the client's own."""

    entry: OwnedEntry
    is_left: bool = False  # by the owner's own client

    def respond(self, status: int, headers: HeaderLines, body: bytes) -> None:
        """Record a whole reply; only a successful one is kept."""
        if self.is_ended:
            return
        self.has_begun = self.is_ended = True
        self.entry.begin(Head(status, headers, is_stream=False))
        self.entry.finish(End.KEPT if status == 200 else End.FAILED, body)

    def begin_stream(self, status: int, headers: HeaderLines) -> None:
        """Record the head of a reply in pieces."""
        self.has_begun = True
        self.entry.begin(Head(status, headers, is_stream=True))

    def send(self, data: bytes) -> bool:
        """Record a piece; tell whether what is not kept is to wait for the owner's client.

        Raises :class:`ClientLeftError` when nobody will ever read it.
        """
        if not self.is_gone:
            self.entry.append(data)
            self._leave_if_unread()
        if self.is_gone:
            raise ClientLeftError
        return self._is_congested()

    def passing_line(self) -> None:
        """Return None: a recording keeps pieces, and not how they are framed."""

    def end_stream(self, data: bytes = b"") -> None:
        """Record the last piece and the end. Raises :class:`ClientLeftError`, as :meth:`send`."""
        if self.is_gone:
            raise ClientLeftError
        self.is_ended = True
        self.entry.finish(End.KEPT if data.endswith(_DONE) else End.FAILED, data)

    def _is_congested(self) -> bool:
        return self.entry.recording.rest_bytes > _CONGESTED_BYTES

    async def drained(self) -> None:
        """Return when the client has caught up. Raises :class:`ClientLeftError`."""
        while self._is_congested():
            if self.is_gone:
                raise ClientLeftError
            await self.entry.recording.next_change()

    def abandon(self) -> None:
        """Do nothing: whoever serves the client closes a connection that takes nothing."""

    def client_left(self) -> None:
        """Note that the owner's own client left: the reply goes on if it can be kept."""
        self.is_left = True
        self._leave_if_unread()

    def end_run(self, error: ApiError | None) -> None:
        """End what the run has left without an end, with ``error`` if a stream is under way."""
        if self.is_ended:
            return
        self.is_ended = True
        if error is not None and self.has_begun:
            self.entry.finish(End.FAILED, error_event(error))
        else:
            self.entry.finish(End.LOST)

    def _leave_if_unread(self) -> None:
        if self.is_left and self.entry.recording.is_given_up and not self.is_gone:
            self.leave()
            self.entry.recording.wake()


def record(
    exchange: HttpExchange, entry: OwnedEntry, loop: asyncio.AbstractEventLoop
) -> RecordingExchange:
    """Return what takes the place of ``exchange``, whose body has been read."""
    return RecordingExchange(
        _RecordingLine(loop),
        method=exchange.method,
        path=exchange.path,
        headers=exchange.headers,
        keeps_alive=False,
        is_http_1_0=False,
        is_body_whole=True,
        entry=entry,
    )
