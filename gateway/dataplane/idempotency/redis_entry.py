"""A reply that this worker makes and others follow: what of it is still to be published, and its end."""

from __future__ import annotations

import asyncio
from typing import Protocol

from gateway.dataplane.idempotency.local_store import LocalEntry, LocalStore
from gateway.dataplane.idempotency.recording import End, Head
from gateway.dataplane.idempotency.redis_items import (
    Seal,
    data_items,
    end_item,
    entry_keys,
    head_item,
)
from gateway.dataplane.idempotency.store import IdempotencyLimits, OnceRequest

LEASE_SECONDS = 10.0  # a killed owner's key is free after so long at the most
_ENDED_SECONDS = 30.0  # followers may still read a reply that is not kept


class Publisher(Protocol):
    """Who sends what entries have to publish."""

    store: LocalStore
    limits: IdempotencyLimits

    def mark(self, entry: PublishedEntry, *, is_urgent: bool = False) -> None:
        """Have an entry's news sent."""

    def drop_owned(self, entry: PublishedEntry) -> None:
        """Renew an entry's lease no longer."""


class PublishedEntry:
    """An entry that others follow; :class:`gateway.dataplane.idempotency.store.OwnedEntry`."""

    def __init__(
        self, local: LocalEntry, request: OnceRequest, token: str, publisher: Publisher
    ) -> None:
        self.local = local
        self.recording = local.recording
        self.name = request.name
        self.token = token
        self.keys = entry_keys(request.name, token)
        self._request = request
        self._publisher = publisher
        self._seal = Seal(request, token)
        self._run = token
        self._times_put_back = 0
        self._is_put_back = False  # the key is to be taken again
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
        place = self._items
        for item in items:
            sealed.append(self._seal.close(item, self._items))
            self._items += 1
            await asyncio.sleep(0)  # a large reply takes several; others go on between
        digest = self._request.digest if self._is_put_back else b""
        self._is_put_back = False
        return [self.token, state, int(seconds * 1000), digest, place, *sealed]

    def put_back(self) -> None:
        """Have all of it published anew, and the key taken again if nobody else has it by now.

        For a Redis that has lost it, or may have: under the run's next token, so that what arrives late
        of what was sent before belongs to nobody.
        """
        if self.end not in (None, End.KEPT):  # its key is free, as it is to be
            self.go_local()
            return
        self._times_put_back += 1
        self._is_put_back = True
        self.token = f"{self._run}.{self._times_put_back:06}"
        self.keys = entry_keys(self.name, self.token)
        self._seal = Seal(self._request, self.token)
        self._items, self._is_refusal_sent = 0, False
        self._head, self._pieces = self.recording.head, []
        if not self.recording.is_given_up:
            self._pieces = list(self.recording.pieces)
        self._publisher.mark(self)

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
