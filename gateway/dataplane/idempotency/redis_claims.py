"""Claims on their way to Redis: one pipeline at a time, at once when none is under way.

What comes meanwhile goes together with the next: a burst costs one round trip and no connections.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import redis.asyncio
from redis.exceptions import RedisError

from gateway.dataplane.idempotency.redis_ask import ask_again
from gateway.dataplane.idempotency.redis_items import CLAIM, MEMORY_KEY, entry_keys
from gateway.dataplane.idempotency.store import OnceRequest

_ASK_SECONDS = 2.0


class Answer(NamedTuple):
    """Whose a key is."""

    owner: str  # its token; "": Redis has lost its memory, and owners may be putting back what they run
    digest: bytes  # of its request
    memory: bytes  # the name of what Redis remembers
    wait_seconds: float = 0.0  # until it is known


_Asked = tuple[OnceRequest, str, "asyncio.Future[Answer]"]


class ClaimSender:
    """Asks Redis who owns what."""

    def __init__(
        self, client: redis.asyncio.Redis, loop: asyncio.AbstractEventLoop, *, lease_ms: int
    ) -> None:
        self._client = client
        self._loop = loop
        self._lease_ms = lease_ms
        self._asked: list[_Asked] = []
        self._task: asyncio.Task[None] | None = None

    def ask(self, request: OnceRequest, token: str) -> asyncio.Future[Answer]:
        """Claim a key for ``token``; the future tells whose it is, or raises RedisError, OSError.

        Whoever waits for it no longer cancels it.
        """
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._asked.append((request, token, future))
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._send_all())
        return future

    def close(self) -> None:
        """Ask nothing more."""
        if self._task is not None:
            self._task.cancel()

    async def _send_all(self) -> None:
        task = asyncio.current_task()
        while self._asked and not (task is not None and task.cancelling()):
            asked, self._asked = self._asked, []
            asked = [each for each in asked if not each[2].done()]
            if asked:
                await self._send(asked)

    async def _send(self, asked: list[_Asked]) -> None:
        results: list[Any]
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                # Who claims again what is already its own is told so.
                results = await ask_again(self._client, lambda: self._execute(asked))
        except (RedisError, OSError) as error:  # a timeout is an OSError
            results = [error] * len(asked)
        for (_, _, future), result in zip(asked, results, strict=True):
            if future.done():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(_read(*result))

    async def _execute(self, asked: list[_Asked]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for request, token, _ in asked:
            owner = entry_keys(request.name, token).owner
            pipeline.eval(CLAIM, 2, owner, MEMORY_KEY, token, request.digest, self._lease_ms)
        return await pipeline.execute(raise_on_error=False)


def _read(owner: bytes, digest: bytes, memory: bytes) -> Answer:
    if owner:
        return Answer(owner.decode(), digest, memory)
    return Answer("", b"", memory, int(digest) / 1000)
