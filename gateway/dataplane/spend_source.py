"""Where a worker hears what the ledger knows of each budget: the billing worker's SpendFeed.

From the file in the state directory, and from Redis where there is one; the newest counts. While
neither has news the last feed stands, and what this worker settled since is added to it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec
import redis.asyncio
from redis.exceptions import RedisError

from billing.budgets.spend_feed import REDIS_KEY, SCHEMA_VERSION, SpendFeed
from gateway.redis_owner import go_to_owner

if TYPE_CHECKING:
    from gateway.dataplane.limits.types import Limiter

REDIS_POLL_SECONDS = 0.5
_RECONNECT_SECONDS = 1.0

_LOG = logging.getLogger(__name__)
_decode = msgspec.json.Decoder(SpendFeed).decode


class SpendHolder:
    """Hands each newer feed to the limiter."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._version = 0
        self._seen = b""

    def offer(self, data: bytes) -> bool:
        """Take ``data`` if it is a good feed and newer; returns whether it was taken."""
        if data == self._seen:
            return False
        self._seen = data
        try:
            feed = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            _LOG.warning("spend feed: kept the last good one: %s", error)
            return False
        if feed.schema_version != SCHEMA_VERSION or feed.version <= self._version:
            return False
        self._version = feed.version
        self._limiter.use_feed(feed)
        return True


async def follow_redis(redis_url: str, holder: SpendHolder) -> None:
    """Offer what Redis has, twice a second, until cancelled. Outages are waited out."""
    task = asyncio.current_task()
    # Asked each time: before Python 3.12 `asyncio.wait_for`, which redis-py uses, may swallow a
    # cancellation.
    while task is None or not task.cancelling():
        client = redis.asyncio.Redis.from_url(
            redis_url, socket_connect_timeout=2, socket_timeout=3, health_check_interval=5
        )
        try:
            async with client:
                await go_to_owner(client, REDIS_KEY)
                while task is None or not task.cancelling():
                    data = await client.get(REDIS_KEY)
                    if isinstance(data, bytes):  # the client decodes nothing
                        holder.offer(data)
                    await asyncio.sleep(REDIS_POLL_SECONDS)
        except (RedisError, OSError):
            await asyncio.sleep(_RECONNECT_SECONDS)  # the Snapshot's source logs the outage
