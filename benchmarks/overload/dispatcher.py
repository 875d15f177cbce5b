"""The fair queue alone before an engine: ``python -m benchmarks.overload.dispatcher``.

A stand-in for the data plane that has its queue and nothing else. The bearer token is the
organization, the model ``bulk`` the class batch, and any other the class interactive.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import signal
from collections.abc import Callable
from typing import Any, cast

import httptools
import msgspec
import uvloop

from benchmarks.overload.post import Poster
from gateway.dataplane.fair_queue import FairQueue
from gateway.dataplane.queue_order import BATCH, INTERACTIVE
from gateway.dataplane.queue_slot import QueueRefusedError

_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_DONE = b"data: [DONE]"
_PROMPT_COST = 0.05  # of a prompt's token, in those of output: prompts are read many at a time


class Dispatcher:
    """What the process holds."""

    def __init__(self, options: argparse.Namespace, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.queue = FairQueue(loop, options.max_in_flight)
        self.engine = Poster(options.engine)
        self._options = options

    async def serve(self, secret: str, raw: bytes, send: Callable[[bytes], None]) -> None:
        """Send the reply, a stream as it comes."""
        body: dict[str, Any] = msgspec.json.decode(raw)
        priority = BATCH if body["model"] == "bulk" else INTERACTIVE
        try:
            slot = await self.queue.enter(
                route_id=body["model"],
                organization_id=secret,
                weight=1.0,
                priority=priority,
                cost=len(raw) / 4 * _PROMPT_COST + body["max_tokens"],
                size=self._options.size,
                deadline_seconds=self._options.deadline_seconds,
            )
        except QueueRefusedError as refusal:
            send(_refuse(refusal))
            return
        cost = None
        try:
            body["model"] = "simulated"
            relay = _StreamRelay(send)
            reply = await self.engine.post(
                "/v1/chat/completions", msgspec.json.encode(body), {}, relay.take
            )
            if reply.status == 200:
                cost = len(raw) / 4 * _PROMPT_COST + count_output(reply.body)
        finally:
            slot.leave(cost)
        send(_LAST_CHUNK if relay.has_begun else _reply(reply.status, reply.body))


class _StreamRelay:
    """Passes the pieces of a stream on."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self.has_begun = False

    def take(self, piece: bytes) -> None:
        head = b"" if self.has_begun else _STREAM_HEAD
        self.has_begun = True
        self._send(b"%b%x\r\n%b\r\n" % (head, len(piece), piece))


class _Usage(msgspec.Struct):
    completion_tokens: int


class _Answer(msgspec.Struct):
    usage: _Usage


def count_output(body: bytes) -> int:
    """Return the output tokens of a whole reply, or of a stream whose last event has them."""
    if body.startswith(b"data: "):
        body = body.rstrip().removesuffix(_DONE).rstrip().rpartition(b"data: ")[2]
    return msgspec.json.decode(body, type=_Answer).usage.completion_tokens


def _refuse(refusal: QueueRefusedError) -> bytes:
    seconds = refusal.retry_after_seconds
    lines = f"retry-after: {math.ceil(seconds)}\r\nretry-after-ms: {math.ceil(seconds * 1000)}\r\n"
    return _reply(503, msgspec.json.encode({"error": {"message": str(refusal)}}), lines)


def _reply(status: int, body: bytes, lines: str = "") -> bytes:
    head = f"HTTP/1.1 {status} Status\r\n{lines}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class _Connection(asyncio.Protocol):
    """One request at a time; a client that leaves ends its request wherever it is."""

    _transport: asyncio.Transport

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._parser = httptools.HttpRequestParser(self)
        self._body = bytearray()
        self._secret = ""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._body.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"authorization":
            self._secret = value.decode().removeprefix("Bearer ")

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        self._task = self._dispatcher.loop.create_task(self._serve(bytes(self._body)))

    async def _serve(self, body: bytes) -> None:
        if not body:  # a GET, of whoever waits until we listen
            self._transport.write(_reply(200, b""))
            return
        try:
            await self._dispatcher.serve(self._secret, body, self._transport.write)
        except (OSError, EOFError):
            self._transport.abort()  # whatever of a reply has left is not whole


async def _run(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    dispatcher = Dispatcher(options, loop)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(
        lambda: _Connection(dispatcher), "127.0.0.1", options.port, backlog=4096
    )
    await stop.wait()
    server.close()


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overload.dispatcher")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--engine", required=True, help="its base URL, without /v1")
    parser.add_argument("--max-in-flight", type=int, required=True)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--deadline-seconds", type=float, default=30.0)
    uvloop.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
