"""Where a data-plane worker gets Snapshots from: the file, Redis (redis_source.py), or both at once.

With both, a revoked key is still refused on this host while Redis is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

FILE_POLL_SECONDS = 0.1

Offer = Callable[[bytes], bool]
# Fetches what a Snapshot names before it is offered; takes a moment at most, and never raises.
Prepare = Callable[[bytes], Awaitable[None]]


async def prepare_nothing(_: bytes) -> None:
    """Nothing travels beside what is followed."""


class SnapshotSource(Protocol):
    """Somewhere Snapshots come from."""

    async def follow(self, offer: Offer) -> None:
        """Offer what is there and then every newer one, until cancelled. Outages are waited out."""


class FileSource:
    """The file that the control plane renames into place."""

    def __init__(self, path: Path, prepare: Prepare = prepare_nothing) -> None:
        self._path = path
        self._prepare = prepare
        self._seen: tuple[int, int] | None = None

    def read(self, offer: Offer) -> None:
        """Offer the file's content if it changed since the last look."""
        data = self._find_new()
        if data is not None:
            offer(data)

    def _find_new(self) -> bytes | None:
        try:
            stat = self._path.stat()
            identity = (stat.st_ino, stat.st_mtime_ns)
            if identity == self._seen:
                return None
            data = self._path.read_bytes()
        except OSError:
            return None  # not there yet, or being replaced: the next look finds it
        self._seen = identity
        return data

    async def follow(self, offer: Offer) -> None:
        """Look at the file ten times a second; one ``stat`` each."""
        while True:
            data = self._find_new()
            if data is not None:
                await self._prepare(data)
                offer(data)
            await asyncio.sleep(FILE_POLL_SECONDS)
