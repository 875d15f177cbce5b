"""Snapshots from Redis; loaded only where there is one."""

from __future__ import annotations

import asyncio
import logging

import redis.asyncio
from redis.exceptions import RedisError

from gateway.redis_owner import go_to_owner
from gateway.snapshot.publish import REDIS_CHANNEL, REDIS_KEY, REDIS_VERSION_KEY
from gateway.snapshot.source import Offer, Prepare, prepare_nothing

REDIS_POLL_SECONDS = 0.5  # in case a notice was lost
_RECONNECT_SECONDS = 0.5

_LOG = logging.getLogger(__name__)


class RedisSource:
    """A Redis or Valkey server: notices by channel, the bytes by key."""

    def __init__(self, redis_url: str, prepare: Prepare = prepare_nothing) -> None:
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
