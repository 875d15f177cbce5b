"""Asking Redis once more where only the connection was lost.

A lost connection says little: an administrator's ``CLIENT KILL``, a proxy's idle timeout or a failover
ends it while the server is there. One that is away refuses the next attempts at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import redis.asyncio
from redis.exceptions import ConnectionError as RedisConnectionError

T = TypeVar("T")

_LOST_CONNECTION = (RedisConnectionError, ConnectionError)
_PAUSES_SECONDS = (0.0, 0.01)  # before the second and the third time


async def ask_again(client: redis.asyncio.Redis, ask: Callable[[], Awaitable[T]]) -> T:
    """Return what ``ask`` returns, asked again over a new connection if the one it had was lost.

    Only for what may be done twice: the first may have been done. Raises what the third raises.
    """
    for pause in _PAUSES_SECONDS:
        try:
            return await ask()
        except _LOST_CONNECTION:
            # What ended one ends those that lie idle, and some of them do not know yet.
            await client.connection_pool.disconnect(inuse_connections=False)
            await asyncio.sleep(pause)
    return await ask()
