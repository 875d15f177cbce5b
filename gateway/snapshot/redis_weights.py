"""Weights of prompt classifiers in Redis; loaded only where there is one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError

from gateway.redis_owner import go_to_owner
from gateway.snapshot.weights import WeightsPlaceError, is_sha256

REDIS_WEIGHTS_KEY = "{forebay}:weights"
_REDIS_TIMEOUT_SECONDS = 2.0


class RedisWeights:
    """A Redis or Valkey server; connected anew each time, for it is seldom used."""

    def __init__(self, redis_url: str) -> None:
        self._url = redis_url

    async def list_held(self) -> set[str]:
        """Return the hash's fields."""
        return {
            name
            for field in await self._ask("HKEYS")
            if is_sha256(name := field.decode("ascii", "replace")) is not None
        }

    async def put(self, sha256: str, data: bytes) -> None:
        """Set a field."""
        await self._ask("HSET", sha256, data)

    async def remove(self, sha256s: Collection[str]) -> None:
        """Delete fields."""
        if sha256s:
            await self._ask("HDEL", *sha256s)

    async def read(self, sha256: str) -> bytes | None:
        """Return a field's value."""
        try:
            found: bytes | None = await self._ask("HGET", sha256)
        except WeightsPlaceError:
            return None
        return found

    async def _ask(self, command: str, *arguments: str | bytes) -> Any:
        client = redis.asyncio.Redis.from_url(
            self._url,
            socket_timeout=_REDIS_TIMEOUT_SECONDS,
            socket_connect_timeout=_REDIS_TIMEOUT_SECONDS,
        )
        try:
            async with client:
                await go_to_owner(client, REDIS_WEIGHTS_KEY)
                return await client.execute_command(  # type: ignore[no-untyped-call]
                    command, REDIS_WEIGHTS_KEY, *arguments
                )
        except (RedisError, OSError) as error:
            raise WeightsPlaceError(type(error).__name__) from error
