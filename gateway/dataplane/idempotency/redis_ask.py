"""Asking Redis once more where only the connection was lost.

A lost connection says little: an administrator's ``CLIENT KILL``, a proxy's idle timeout or a failover
ends it while the server is there. One that is away refuses the second attempt at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError

T = TypeVar("T")

_LOST_CONNECTION = (RedisConnectionError, ConnectionError)


async def ask_twice(ask: Callable[[], Awaitable[T]]) -> T:
    """Return what ``ask`` returns, asked again over a new connection if the one it had was lost.

    Only for what may be done twice: the first may have been done. Raises what the second raises.
    """
    try:
        return await ask()
    except _LOST_CONNECTION:
        return await ask()
