"""The owner's side in Redis: what is recorded here is published for other workers to follow.

One task sends for all entries of this worker, one pipeline after the other: items stay in order,
and what comes while a pipeline is under way goes with the next. The same pipelines renew the
leases. Whatever fails there, the entry goes on in this process alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError

from gateway.dataplane.idempotency.local_store import LocalEntry, LocalStore
from gateway.dataplane.idempotency.recording import End, Head
from gateway.dataplane.idempotency.redis_items import (
    DROP,
    PUBLISH,
    Seal,
    data_items,
    end_item,
    entry_keys,
    head_item,
)
from gateway.dataplane.idempotency.store import IdempotencyLimits, OnceRequest

LEASE_SECONDS = 10.0  # a killed owner's key is free after so long at the most
RENEW_SECONDS = 3.0
_GATHER_SECONDS = 0.02  # pieces wait so long for others
_SEND_SECONDS = 3.0
_CLOSE_SECONDS = 1.0
_HOLD_BACK_SECONDS = 0.1  # an error waits at most so long until its key is free everywhere
_ENDED_SECONDS = 30.0  # followers may still read a reply that is not kept

_LOG = logging.getLogger(__name__)


class PublishedEntry:
    """An entry that others follow; :class:`gateway.dataplane.idempotency.store.OwnedEntry`."""

    def __init__(
        self, local: LocalEntry, request: OnceRequest, token: str, publisher: RedisPublisher
    ) -> None:
        self.local = local
        self.recording = local.recording
        self.name = request.name
        self.token = token
        self.keys = entry_keys(request.name, token)
        self._publisher = publisher
        self._seal = Seal(request, token)
        self._head: Head | None = None  # to be sent
        self._pieces: list[bytes] = []  # to be sent
        self._items = 0  # sent
        self._is_refusal_sent = False
        self._is_local = False
        self._is_settled = False
        self._last = b""  # of a failed reply, held back until its key is free
        self.end: End | None = None

    def begin(self, head: Head) -> None:
        """Note the reply's head."""
        self.local.begin(head)
        self._head = head
        self._publisher.mark(self)

    def append(self, data: bytes) -> None:
        """Add a piece of the body, or give the recording up where it is over the bounds."""
        self.local.append(data)
        if not self._is_local:
            self._pieces.append(data)
            if self.recording.is_given_up:
                self._pieces = []
            self._publisher.mark(self)

    def finish(self, end: End, last: bytes = b"") -> None:
        """Add the last piece and end the reply; keep it or free the key."""
        if self._is_local:
            self.local.finish(end, last)
            return
        if end is End.KEPT and last:
            self.append(last)
            last = b""
        if self.recording.is_given_up:
            if last:
                self.local.append(last)
            end = End.NOT_KEPT
        elif last:
            self._pieces.append(last)
            self._last = last
        self.end = end
        if end is End.KEPT:
            self.recording.close(end)  # the key stays taken: nothing to wait for
        self._publisher.mark(self, is_urgent=end is not End.KEPT)

    async def take(self) -> list[bytes | str | int]:
        """Return what is to be published now, as the script's arguments."""
        items = [] if self._head is None else [head_item(self._head)]
        items += data_items(self._pieces)
        self._head, self._pieces = None, []
        if self.recording.is_given_up:
            items = [] if self._is_refusal_sent else [end_item(End.NOT_KEPT)]
            self._is_refusal_sent = True
        elif self.end is not None:
            items.append(end_item(self.end))
        state, seconds = "running", LEASE_SECONDS
        if self.end is End.KEPT:
            state, seconds = "kept", self._publisher.limits.retention_seconds
        elif self.end is not None:
            state, seconds = "freed", _ENDED_SECONDS
        sealed: list[bytes | str | int] = []
        for item in items:
            sealed.append(self._seal.close(item, self._items))
            self._items += 1
            await asyncio.sleep(0)  # a large reply takes several; others go on between
        return [self.token, state, int(seconds * 1000), *sealed]

    def settle(self, *, is_published: bool) -> None:
        """Leave an ended entry to Redis, or keep it here where Redis does not have it."""
        if self._is_settled or self.end is None:
            return
        self._is_settled = True
        self._publisher.drop_owned(self)
        if self.end is End.KEPT and is_published:
            self._publisher.store.forget(self.local)
        else:
            self.local.finish(self.end, self._last)

    def settle_late(self) -> None:
        """Hold an error back no longer; its key will be free elsewhere a little later."""
        self.settle(is_published=False)

    def go_local(self) -> None:
        """Publish nothing more: Redis is away, or another owner has the key."""
        self._is_local = True
        self._head, self._pieces = None, []
        self._publisher.drop_owned(self)
        self.settle(is_published=False)


class RedisPublisher:
    """Sends what this worker's entries have to publish."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        store: LocalStore,
        limits: IdempotencyLimits,
        *,
        loop: asyncio.AbstractEventLoop,
        is_away: Callable[[], None],
    ) -> None:
        self.store = store
        self.limits = limits
        self._client = client
        self._loop = loop
        self._is_away = is_away
        self._owned: set[PublishedEntry] = set()
        self._marked: dict[PublishedEntry, None] = {}  # in order
        self._wake = asyncio.Event()
        self._urgent = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._kept: OrderedDict[str, tuple[str, int, float]] = OrderedDict()  # oldest first
        self._kept_bytes = 0
        self._drops: set[asyncio.Task[None]] = set()  # the loop itself would let them go

    def own(self, local: LocalEntry, request: OnceRequest, token: str) -> PublishedEntry:
        """Return the entry of a request that this worker has claimed in Redis."""
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
            await _wait(self._wake, renew_at - self._loop.time())
            await _wait(self._urgent, _GATHER_SECONDS)
            if self._loop.time() >= renew_at:
                renew_at = self._loop.time() + RENEW_SECONDS
                self._marked.update(dict.fromkeys(self._owned))
            self._wake.clear()
            self._urgent.clear()
            marked, self._marked = list(self._marked), {}
            await self._send(marked)

    async def _send(self, entries: list[PublishedEntry]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        ends = []
        for entry in entries:
            ends.append(entry.end)  # as it is sent; it may come while the pipeline is under way
            pipeline.eval(PUBLISH, 2, entry.keys.owner, entry.keys.reply, *await entry.take())
        results: list[Any]
        try:
            async with asyncio.timeout(_SEND_SECONDS):
                results = await pipeline.execute(raise_on_error=False)
        except (RedisError, OSError, TimeoutError):
            self._is_away()
            results = [None] * len(entries)
        for entry, end, result in zip(entries, ends, results, strict=True):
            if result != 1:
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
        with contextlib.suppress(RedisError, OSError):  # its time will end it
            await self._client.eval(DROP, 2, keys.owner, keys.reply, token)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
