"""The owner's side in Redis: what is recorded here is published for other workers to follow.

One task sends for all entries of this worker, one pipeline after the other: items stay in order,
and what comes while a pipeline is under way goes with the next. The same pipelines renew the
leases. Between them the task looks whether Redis still is the one that it was: what one has lost that was
emptied or restarted is put back before anybody else may claim it (``redis_items.py``). While Redis is away
the entries go on in this process alone, and are put back when it has returned.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import redis.asyncio
from redis.exceptions import MovedError, RedisError

from gateway.dataplane.idempotency.local_store import LocalEntry, LocalStore
from gateway.dataplane.idempotency.recording import End
from gateway.dataplane.idempotency.redis_ask import ask_again
from gateway.dataplane.idempotency.redis_entry import PublishedEntry
from gateway.dataplane.idempotency.redis_items import DROP, MEMORY_KEY, PUBLISH, entry_keys
from gateway.dataplane.idempotency.store import IdempotencyLimits, OnceRequest

RENEW_SECONDS = 3.0
_LOOK_SECONDS = 0.1  # a quarter of what claims wait for us once Redis has lost its memory
_LOOK_TIMEOUT_SECONDS = 0.5
_GATHER_SECONDS = 0.02  # pieces wait so long for others
_SEND_SECONDS = 3.0
_CLOSE_SECONDS = 1.0
_HOLD_BACK_SECONDS = 0.1  # an error waits at most so long until its key is free everywhere

_LOG = logging.getLogger(__name__)


class RedisPublisher:
    """Sends what this worker's entries have to publish."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        store: LocalStore,
        limits: IdempotencyLimits,
        *,
        loop: asyncio.AbstractEventLoop,
        is_away: Callable[[str], None],
    ) -> None:
        self.store = store
        self.limits = limits
        self._client = client
        self._loop = loop
        self._is_away = is_away
        self._memory: bytes | None = None  # the name of what Redis remembers, when last looked
        self._look_at = 0.0  # loop time
        self._is_lost = False  # Redis is away, and what it will know of us is in doubt
        self._owned: set[PublishedEntry] = set()
        self._marked: dict[PublishedEntry, None] = {}  # in order
        self._wake = asyncio.Event()
        self._urgent = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._kept: OrderedDict[str, tuple[str, int, float]] = OrderedDict()  # oldest first
        self._kept_bytes = 0
        self._drops: set[asyncio.Task[None]] = set()  # the loop itself would let them go

    def own(
        self, local: LocalEntry, request: OnceRequest, token: str, memory: bytes
    ) -> PublishedEntry:
        """Return the entry of a request that this worker has claimed in Redis.

        ``memory``: the name of what Redis remembered at the claim.
        """
        self._note_memory(memory)
        entry = PublishedEntry(local, request, token, self)
        self._owned.add(entry)
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._send_until_idle())
        return entry

    def mark(self, entry: PublishedEntry, *, is_urgent: bool = False) -> None:
        """Have an entry's news sent."""
        self._marked[entry] = None
        self._wake.set()
        if is_urgent:
            self._urgent.set()
            self._loop.call_later(_HOLD_BACK_SECONDS, entry.settle_late)

    def give_back(self, name: str, token: str) -> None:
        """Free a key that nothing runs under."""
        task = self._loop.create_task(self._drop(name, token))
        self._drops.add(task)
        task.add_done_callback(self._drops.discard)

    def drop_owned(self, entry: PublishedEntry) -> None:
        """Renew an entry's lease no longer."""
        self._owned.discard(entry)

    async def close(self) -> None:
        """Send what is left, for a second at most."""
        self._urgent.set()
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_CLOSE_SECONDS)
            self._task.cancel()

    async def _send_until_idle(self) -> None:
        renew_at = self._loop.time() + RENEW_SECONDS
        task = asyncio.current_task()
        while (self._owned or self._marked) and not (task is not None and task.cancelling()):
            if self._is_lost:
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                await _wait(self._wake, min(renew_at - self._loop.time(), _LOOK_SECONDS))
            if self._wake.is_set():
                await _wait(self._urgent, _GATHER_SECONDS)
            await self._look()
            if self._loop.time() >= renew_at:
                renew_at = self._loop.time() + RENEW_SECONDS
                self._marked.update(dict.fromkeys(self._owned))
            self._wake.clear()
            self._urgent.clear()
            marked, self._marked = list(self._marked), {}
            if self._is_lost:
                _settle_ended(marked)
            elif marked:
                await self._send(marked)

    async def _look(self) -> None:
        """Find out whether Redis still remembers what it did, at most every so often."""
        now = self._loop.time()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        try:
            async with asyncio.timeout(_LOOK_TIMEOUT_SECONDS):
                memory: Any = await ask_again(self._client, self._read_memory)
        except (RedisError, OSError, TimeoutError) as error:
            self._lose(type(error).__name__)
            return
        if self._is_lost:
            self._is_lost = False
            for entry in list(self._owned):
                entry.put_back()
        self._note_memory(memory)

    async def _read_memory(self) -> Any:
        return await self._client.get(MEMORY_KEY)

    def _note_memory(self, memory: bytes | None) -> None:
        """Have all entries asked for where Redis may have forgotten them."""
        if memory != self._memory:
            self._memory = memory
            self._marked.update(dict.fromkeys(self._owned))

    def _lose(self, reason: str) -> None:
        self._is_lost = True
        self._is_away(reason)

    async def _send(self, entries: list[PublishedEntry]) -> None:
        ends, sent = [], []
        for entry in entries:
            ends.append(entry.end)  # as it is sent; it may come while the pipeline is under way
            sent.append((entry.keys.owner, entry.keys.reply, *await entry.take()))

        async def publish() -> list[Any]:
            pipeline = self._client.pipeline(transaction=False)
            for each in sent:
                pipeline.eval(PUBLISH, 2, *each)
            return await pipeline.execute(raise_on_error=False)

        results: list[Any]
        reason = "its keys have moved"
        try:
            async with asyncio.timeout(_SEND_SECONDS):
                results = await ask_again(self._client, publish)
        except (RedisError, OSError, TimeoutError) as error:
            results, reason = [], type(error).__name__
        if not results or any(isinstance(result, MovedError) for result in results):
            self._lose(reason)
            _settle_ended(entries)
            return
        for entry, end, result in zip(entries, ends, results, strict=True):
            if result == -1:
                entry.put_back()
            elif result != 1:
                entry.go_local()
            elif end is not None:
                if end is End.KEPT:
                    await self._note_kept(entry)
                entry.settle(is_published=True)

    async def _note_kept(self, entry: PublishedEntry) -> None:
        """Count what this worker keeps in Redis, and drop its oldest where that is too much."""
        now = self._loop.time()
        size = entry.recording.body_bytes
        self._kept[entry.name] = (entry.token, size, now + self.limits.retention_seconds)
        self._kept_bytes += size
        while self._kept:
            name, (token, size, expires_at) = next(iter(self._kept.items()))
            if expires_at > now and self._kept_bytes <= self.limits.total_bytes:
                return
            del self._kept[name]
            self._kept_bytes -= size
            if expires_at > now:
                await self._drop(name, token)

    async def _drop(self, name: str, token: str) -> None:
        keys = entry_keys(name, token)

        async def drop() -> None:
            await self._client.eval(DROP, 2, keys.owner, keys.reply, token)

        with contextlib.suppress(RedisError, OSError):  # its time will end it
            await ask_again(self._client, drop)


def _settle_ended(entries: list[PublishedEntry]) -> None:
    for entry in entries:
        if entry.end is not None:
            entry.go_local()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
