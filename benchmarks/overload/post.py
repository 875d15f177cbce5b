"""A small pooled HTTP/1.1 client; a cancelled request closes its connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class Poster:
    """Connections to one server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._prefix = parts.path.rstrip("/")
        self._idle: list[Streams] = []

    async def post(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        on_piece: Callable[[bytes], None] = lambda _: None,
    ) -> Reply:
        """Send and wait for the whole reply. Raises ``OSError`` and ``EOFError``.

        ``on_piece`` is given each piece of a streamed body when it comes.
        """
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = (
            f"POST {self._prefix}{path} HTTP/1.1\r\nhost: {self._host}:{self._port}\r\n{lines}"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        reader, writer = await self._take()
        is_whole = False
        try:
            writer.write(head.encode() + body)
            reply, keeps_alive = await _read_reply(reader, on_piece)
            is_whole = keeps_alive
        finally:
            if is_whole:
                self._idle.append((reader, writer))
            else:
                writer.transport.abort()
        return reply

    async def _take(self) -> Streams:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self._host, self._port)

    def close(self) -> None:
        """Close what is idle."""
        while self._idle:
            self._idle.pop()[1].transport.abort()


async def _read_reply(
    reader: asyncio.StreamReader, on_piece: Callable[[bytes], None]
) -> tuple[Reply, bool]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    if headers.get("transfer-encoding") == "chunked":
        body = await _read_chunks(reader, on_piece)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    reply = Reply(int(lines[0].split()[1]), headers, body)
    return reply, headers.get("connection", "").lower() != "close"


async def _read_chunks(reader: asyncio.StreamReader, on_piece: Callable[[bytes], None]) -> bytes:
    pieces: list[bytes] = []
    while True:
        size = int(await reader.readuntil(b"\r\n"), 16)
        piece = (await reader.readexactly(size + 2))[:size]
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        on_piece(piece)
