"""Serves a recording on a client's exchange: from the beginning, then live, at the client's pace.

The owner's own client is served like all others, with one difference: what is too large to be kept
is still its own.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn

from gateway.dataplane.answer import error_event
from gateway.dataplane.http.exchange import ClientLeftError, HttpExchange
from gateway.dataplane.http.head import HeaderLines
from gateway.dataplane.idempotency.recording import End, Head, Recording
from gateway.errors import ApiError, EngineFailedError, IdempotencyConflictError

REPLAY_LINE: HeaderLines = b"x-forebay-idempotent-replay: true\r\n"
_STALLED_SECONDS = 300.0  # a client that takes nothing for so long has left, whatever TCP says
_SLICE_BYTES = 128 * 1024  # sent at once of a stored reply; then the client is asked
# What stood there when the reply was made is no longer true when it is replayed.
_PASSING = (b"x-ratelimit-", b"x-forebay-budget-warning")


async def serve_recording(
    recording: Recording, exchange: HttpExchange, *, is_owner: bool, lines: HeaderLines = b""
) -> None:
    """Serve a reply until its end; ``lines``: what is true now, for a replay.

    Raises :class:`ApiError` while nothing was sent, and :class:`ClientLeftError`.
    """
    reader = _Reader(recording, exchange, is_owner=is_owner, lines=lines)
    recording.readers += 1
    try:
        await reader.serve()
    finally:
        recording.readers -= 1
        exchange.on_leave = None
        recording.wake()


class _Reader:
    """One client's way through a recording."""

    __slots__ = ("_exchange", "_index", "_is_owner", "_lines", "_pieces", "_recording")

    def __init__(
        self, recording: Recording, exchange: HttpExchange, *, is_owner: bool, lines: HeaderLines
    ) -> None:
        self._recording = recording
        self._exchange = exchange
        self._is_owner = is_owner
        self._lines = lines
        self._pieces = recording.pieces
        self._index = 0

    async def serve(self) -> None:
        head = await self._head()
        headers = head.headers
        if not self._is_owner:
            headers = _lasting_lines(headers) + REPLAY_LINE + self._lines
        if head.is_stream:
            self._exchange.begin_stream(head.status, headers)
            await self._serve_stream()
            return
        body: list[bytes] = []
        while pieces := await self._next_pieces():
            body += pieces
        self._check_end()
        self._exchange.respond(head.status, headers, _joined(body))

    async def _head(self) -> Head:
        recording = self._recording
        while True:
            self._check_end()
            if recording.head is not None:
                return recording.head
            await self._change()

    async def _serve_stream(self) -> None:
        exchange = self._exchange
        while pieces := await self._next_pieces():
            data = _joined(pieces)
            if self._is_at_end and len(data) <= _SLICE_BYTES:
                exchange.end_stream(data)  # with the reply's end, in one write
                return
            for start in range(0, len(data), _SLICE_BYTES):
                await self._send(data[start : start + _SLICE_BYTES])
        try:
            self._check_end()
        except ApiError as error:  # the status has left: the error is the last event
            exchange.end_stream(error_event(error))
        else:
            exchange.end_stream()

    async def _send(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange.send(data):
            try:
                async with asyncio.timeout(_STALLED_SECONDS):
                    await exchange.drained()
            except TimeoutError:
                exchange.abandon()
                raise ClientLeftError from None

    async def _next_pieces(self) -> list[bytes]:
        """Return all of the body that came since the last call, waiting for some; [] at the end."""
        recording = self._recording
        while True:
            if recording.is_given_up and not self._is_owner:
                return []
            if self._index < len(self._pieces):
                pieces = self._pieces[self._index :]
                self._index += len(pieces)
                return pieces
            if recording.is_given_up and recording.pieces:
                self._pieces, self._index = recording.take_rest(), 0
            elif recording.end is not None:
                return []
            else:
                await self._change()

    @property
    def _is_at_end(self) -> bool:
        recording = self._recording
        return recording.end in (End.KEPT, End.FAILED) and not recording.is_given_up

    async def _change(self) -> None:
        """Wait until there is something new. Raises :class:`ClientLeftError`."""
        exchange = self._exchange
        if exchange.is_gone:
            raise ClientLeftError
        change = self._recording.next_change()
        exchange.on_leave = lambda: None if change.done() else change.set_result(None)
        await change
        if exchange.is_gone:
            raise ClientLeftError

    def _check_end(self) -> None:
        """Raise :class:`ApiError` when there is no reply for this client."""
        if self._recording.is_given_up and not self._is_owner:
            _refuse_unkept()
        if self._recording.end is End.NOT_KEPT and not self._is_owner:
            _refuse_unkept()
        if self._recording.end is End.LOST:
            raise EngineFailedError(
                "The process that served the first request with this Idempotency-Key ended. The"
                " key is free: send the request again.",
                code="idempotent_owner_lost",
            )


def _refuse_unkept() -> NoReturn:
    raise IdempotencyConflictError(
        "The reply to the first request with this Idempotency-Key is too large to be kept.",
        code="idempotent_reply_not_kept",
    )


def _joined(pieces: list[bytes]) -> bytes:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _lasting_lines(headers: HeaderLines) -> HeaderLines:
    if not any(name in headers for name in _PASSING):
        return headers
    lines = headers.split(b"\r\n")
    return b"\r\n".join([line for line in lines if not line.startswith(_PASSING)])
