"""Runs: what a request does once it may run, on whatever exchange it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gateway.dataplane.answer import JSON_TYPE, STREAM_HEADERS, error_event, request_id_line
from gateway.dataplane.http.exchange import HttpExchange
from gateway.errors import ApiError, EngineFailedError

Run = Callable[[HttpExchange], Awaitable[None]]

DONE = b"data: [DONE]\n\n"
LINES = request_id_line("req_original")


def frame(number: int, size: int = 0) -> bytes:
    return b'data: {"id":%d,"text":"%b"}\n\n' % (number, b"x" * size)


def whole(body: bytes = b'{"answer":1}', status: int = 200, lines: bytes = b"") -> Run:
    async def run(exchange: HttpExchange) -> None:
        await asyncio.sleep(0.02)  # long enough for others to come meanwhile
        exchange.respond(status, LINES + JSON_TYPE + lines, body)

    return run


def refused(error: ApiError) -> Run:
    async def run(exchange: HttpExchange) -> None:
        await asyncio.sleep(0.02)
        raise error

    return run


class GatedStream:
    """A stream that sends its second half when the test opens the gate."""

    def __init__(self, frames: int = 10, *, size: int = 0, end: bytes = DONE) -> None:
        self.frames = [frame(number, size) for number in range(frames)]
        self.end = end
        self.gate = asyncio.Event()
        self.sent = 0
        self.error: BaseException | None = None

    @property
    def body(self) -> bytes:
        return b"".join(self.frames) + self.end

    async def run(self, exchange: HttpExchange) -> None:
        try:
            await self._run(exchange)
        except BaseException as error:
            self.error = error
            raise

    async def _run(self, exchange: HttpExchange) -> None:
        exchange.begin_stream(200, LINES + STREAM_HEADERS)
        for number, each in enumerate(self.frames):
            if number == len(self.frames) // 2:
                await self.gate.wait()
            is_congested = exchange.send(each)
            self.sent += 1
            if is_congested:
                await exchange.drained()
        exchange.end_stream(self.end)


BROKEN = error_event(EngineFailedError("The engine broke.", code="engine_cut"))
