"""Where a data-plane worker gets Snapshots from: Redis, the file, or both at once.

With both, a revoked key is still refused on this host while Redis is away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import redis.asyncio
from redis.exceptions import RedisError

from gateway.redis_owner import go_to_owner
from gateway.snapshot.publish import REDIS_CHANNEL, REDIS_KEY, REDIS_VERSION_KEY

FILE_POLL_SECONDS = 0.1
REDIS_POLL_SECONDS = 0.5  # in case a notice was lost
_RECONNECT_SECONDS = 0.5

_LOG = logging.getLogger(__name__)

Offer = Callable[[bytes], bool]
# Fetches what a Snapshot names before it is offered; takes a moment at most, and never raises.
Prepare = Callable[[bytes], Awaitable[None]]


async def _prepare_nothing(_: bytes) -> None:
    """Nothing travels beside what is followed."""


class SnapshotSource(Protocol):
    """Somewhere Snapshots come from."""

    async def follow(self, offer: Offer) -> None:
        """Offer what is there and then every newer one, until cancelled. Outages are waited out."""


class FileSource:
    """The file that the control plane renames into place."""

    def __init__(self, path: Path, prepare: Prepare = _prepare_nothing) -> None:
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


class RedisSource:
    """A Redis or Valkey server: notices by channel, the bytes by key."""

    def __init__(self, redis_url: str, prepare: Prepare = _prepare_nothing) -> None:
        self._url = redis_url
        self._prepare = prepare

    async def follow(self, offer: Offer) -> None:
        """Subscribe, and fetch at each notice; reconnect for ever."""
        is_away = False
        task = asyncio.current_task()
        # Asked each time, here and below: before Python 3.12 `asyncio.wait_for`, which redis-py
        # uses, may swallow a cancellation.
        while task is None or not task.cancelling():
            client = redis.asyncio.Redis.from_url(
                self._url, socket_connect_timeout=2, socket_timeout=3, health_check_interval=5
            )
            try:
                async with client:
                    await go_to_owner(client, REDIS_KEY)
                    async with client.pubsub(ignore_subscribe_messages=True) as channel:
                        await channel.subscribe(REDIS_CHANNEL)
                        if is_away:
                            _LOG.info("snapshot: Redis is back")
                            is_away = False
                        await self._fetch_at_notices(client, channel, offer)
            except (RedisError, OSError) as error:
                if not is_away:
                    _LOG.warning("snapshot: Redis is away (%s)", type(error).__name__)
                is_away = True
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _fetch_at_notices(
        self, client: redis.asyncio.Redis, channel: redis.asyncio.client.PubSub, offer: Offer
    ) -> None:
        version: bytes | str | None = None
        task = asyncio.current_task()
        while task is None or not task.cancelling():
            found = await client.get(REDIS_VERSION_KEY)
            if found != version:
                data = await client.get(REDIS_KEY)
                if isinstance(data, bytes):  # the client decodes nothing
                    await self._prepare(data)
                    offer(data)
                version = found
            await channel.get_message(timeout=REDIS_POLL_SECONDS)
