"""The SpendFeed from Redis; loaded only where there is one."""

from __future__ import annotations

import asyncio

import redis.asyncio
from redis.exceptions import RedisError

from billing.budgets.spend_feed import REDIS_KEY
from gateway.dataplane.spend_source import SpendHolder
from gateway.redis_owner import go_to_owner

REDIS_POLL_SECONDS = 0.5
_RECONNECT_SECONDS = 1.0


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
