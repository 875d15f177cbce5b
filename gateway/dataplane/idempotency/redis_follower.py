"""The followers' side in Redis: replies of other workers, read into recordings of this one.

One task asks for all of them, some dozens of times a second while there are any. That is cheaper
than a connection for each, and nothing has to be subscribed again after Redis was away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError

from gateway.dataplane.idempotency.local_store import LocalEntry, LocalStore
from gateway.dataplane.idempotency.recording import End, Head, Recording
from gateway.dataplane.idempotency.redis_items import (
    DROP,
    RUN_CHARACTERS,
    Seal,
    entry_keys,
    read_item,
)
from gateway.dataplane.idempotency.store import OnceRequest

_POLL_SECONDS = 0.02
_READ_SECONDS = 2.0
_AWAY_SECONDS = 3.0  # Redis may be away so long; then nobody knows how the reply goes on
_GONE_SECONDS = 1.0  # its owner may take so long to put back what Redis has lost

_LOG = logging.getLogger(__name__)


class _Followed:
    """One reply that another worker makes or made."""

    __slots__ = ("_known_bytes", "_request", "entry", "gone_at", "items", "keys", "seal", "token")

    def __init__(self, entry: LocalEntry, request: OnceRequest, token: str) -> None:
        self.entry = entry
        self._request = request
        self.gone_at: float | None = None  # loop time; when the owner was not there any more
        self.read_from(token)

    def read_from(self, token: str) -> None:
        """Read what the owner publishes under ``token``, again from its beginning."""
        self.token = token
        self.keys = entry_keys(self._request.name, token)
        self.seal = Seal(self._request, token)
        self.items = 0  # read
        self._known_bytes = self.entry.recording.body_bytes  # of the body, to be passed over

    async def take(self, sealed: list[bytes]) -> None:
        """Add items to the recording."""
        for each in sealed:
            item = read_item(self.seal.open(each, self.items))
            self.items += 1
            if isinstance(item, Head):
                if self.entry.recording.head is None:
                    self.entry.begin(item)
            elif isinstance(item, bytes):
                known = min(self._known_bytes, len(item))
                self._known_bytes -= known
                if known < len(item):
                    self.entry.add_unbounded(item[known:])
                await asyncio.sleep(0)  # opening a large reply takes a while; others go on between
            else:
                self.entry.recording.close(item)


class RedisFollower:
    """Reads what other workers publish."""

    def __init__(
        self, client: redis.asyncio.Redis, store: LocalStore, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._client = client
        self._store = store
        self._loop = loop
        self._followed: dict[
            str, _Followed
        ] = {}  # by what all tokens of the owner's run begin with
        self._task: asyncio.Task[None] | None = None
        self._read_at = 0.0  # when Redis answered last
        self._news = asyncio.Event()  # another one to follow

    def follow(self, request: OnceRequest, token: str) -> Recording:
        """Return a recording that grows as the one of the owner ``token`` does."""
        run = token[:RUN_CHARACTERS]
        if (followed := self._followed.get(run)) is not None:
            return followed.entry.recording
        # Not found by its name: whether the key still is that owner's, only Redis knows.
        entry = self._store.open(request, name=f"{request.name}:{run}")
        self._followed[run] = _Followed(entry, request, token)
        self._news.set()
        if self._task is None or self._task.done():
            self._read_at = self._loop.time()
            self._task = self._loop.create_task(self._follow_all())
        return entry.recording

    async def close(self) -> None:
        """Follow nothing more."""
        if self._task is not None:
            self._task.cancel()

    async def _follow_all(self) -> None:
        task = asyncio.current_task()
        while self._followed and not (task is not None and task.cancelling()):
            self._news.clear()
            try:
                async with asyncio.timeout(_READ_SECONDS):
                    await self._read_all(list(self._followed.values()))
                self._read_at = self._loop.time()
            except (RedisError, OSError, TimeoutError):
                if self._loop.time() - self._read_at > _AWAY_SECONDS:
                    for followed in self._followed.values():
                        followed.entry.recording.close(End.LOST)
            for run, followed in list(self._followed.items()):
                recording = followed.entry.recording
                if recording.end is not None or not recording.readers:
                    recording.close(End.LOST)  # for one who was just about to read
                    self._store.forget(followed.entry)
                    del self._followed[run]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await self._news.wait()

    async def _read_all(self, all_followed: list[_Followed]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for followed in all_followed:
            # In this order: an owner that is gone has published all that it ever will.
            pipeline.hmget(followed.keys.owner, ["owner", "state"])
            pipeline.lrange(followed.keys.reply, followed.items, -1)
        results: list[Any] = await pipeline.execute()
        for followed, (owner, state), items in zip(
            all_followed, results[::2], results[1::2], strict=True
        ):
            try:
                await followed.take(items)
            except ValueError:
                _LOG.exception("idempotency: a stored reply cannot be read")
                followed.entry.recording.close(End.LOST)
            if followed.entry.recording.end is not None:
                continue
            if await self._find_out(followed, owner, state):
                followed.entry.recording.close(End.LOST)

    async def _find_out(
        self, followed: _Followed, owner: bytes | None, state: bytes | None
    ) -> bool:
        """Tell whether a reply of which no end was read has none for us; find it where it went on."""
        token, now = None if owner is None else owner.decode(), self._loop.time()
        if token is None:
            if followed.gone_at is None:
                followed.gone_at = now
            return now - followed.gone_at > _GONE_SECONDS
        followed.gone_at = None
        if token != followed.token:
            if token[:RUN_CHARACTERS] != followed.token[:RUN_CHARACTERS]:
                return True
            followed.read_from(token)
        elif state == b"kept":  # its items are gone: they had to make room
            with contextlib.suppress(RedisError):
                await self._client.eval(DROP, 2, followed.keys.owner, followed.keys.reply, token)
            return True
        return False
