"""Replies in this worker's memory: bounded in bytes, dropped when their time is over."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from gateway.dataplane.idempotency.recording import End, Head, Recording
from gateway.dataplane.idempotency.store import IdempotencyLimits, OnceRequest, check_digest

_PIECE_BYTES = 64  # what a bytes object and its place in a list cost beside the bytes, about
_ENTRY_BYTES = 1024  # what everything else of an entry costs


class LocalEntry:
    """An entry of this process; :class:`gateway.dataplane.idempotency.store.OwnedEntry`."""

    __slots__ = ("_store", "counted_bytes", "digest", "expiry", "name", "recording")

    def __init__(
        self, store: LocalStore, request: OnceRequest, recording: Recording, name: str
    ) -> None:
        self._store = store
        self.name = name
        self.digest = request.digest
        self.recording = recording
        self.counted_bytes = 0  # of the store's, kept by it
        self.expiry: asyncio.TimerHandle | None = None

    def begin(self, head: Head) -> None:
        """Note the reply's head."""
        self._store.count(self, len(head.headers))
        self.recording.begin(head)

    def append(self, data: bytes) -> None:
        """Add a piece of the body, or give the recording up where it is over the bounds."""
        recording = self.recording
        if not recording.is_given_up:
            if self._store.make_room(recording.body_bytes + len(data), len(data)):
                self._store.count(self, len(data) + _PIECE_BYTES)
            else:
                self._store.count(self, _ENTRY_BYTES - self.counted_bytes)
                recording.give_up()
        recording.append(data)

    def add_unbounded(self, data: bytes) -> None:
        """Add a piece of a reply that another worker found small enough."""
        self._store.make_room(0, len(data))
        self._store.count(self, len(data) + _PIECE_BYTES)
        self.recording.append(data)

    def finish(self, end: End, last: bytes = b"") -> None:
        """Add the last piece and end the reply; keep it or free the key."""
        if last:
            self.append(last)
        if self.recording.is_given_up:
            end = End.NOT_KEPT
        if end is End.KEPT:
            self._store.keep(self)
        else:
            self._store.forget(self)
        self.recording.close(end)

    def compact(self) -> None:
        """Hold an ended reply in one piece."""
        pieces = len(self.recording.pieces)
        if pieces > 1:
            self._store.count(self, -(pieces - 1) * _PIECE_BYTES)
            self.recording.compact()


class LocalStore:
    """The store of one worker alone."""

    def __init__(self, limits: IdempotencyLimits, loop: asyncio.AbstractEventLoop) -> None:
        self._limits = limits
        self._loop = loop
        self._entries: dict[str, LocalEntry] = {}
        self._kept: OrderedDict[str, LocalEntry] = OrderedDict()  # the least recently used first
        self.held_bytes = 0

    async def claim(self, request: OnceRequest) -> LocalEntry | Recording:
        """Return an entry to write, or the recording to read.

        Raises :class:`gateway.errors.IdempotencyConflictError`.
        """
        return self.find(request) or self.open(request)

    async def close(self) -> None:
        """Forget everything."""
        for entry in list(self._entries.values()):
            self.forget(entry)

    def find(self, request: OnceRequest) -> Recording | None:
        """Return the recording of a request that is here.

        Raises :class:`gateway.errors.IdempotencyConflictError`.
        """
        entry = self._entries.get(request.name)
        if entry is None:
            return None
        check_digest(entry.digest, request)
        if request.name in self._kept:
            self._kept.move_to_end(request.name)
        return entry.recording

    def open(self, request: OnceRequest, *, name: str | None = None) -> LocalEntry:
        """Return a new entry, with a ``name`` of its own if none is to :meth:`find` it."""
        entry = LocalEntry(self, request, Recording(self._loop), name or request.name)
        self._entries[entry.name] = entry
        self.count(entry, _ENTRY_BYTES)
        return entry

    def count(self, entry: LocalEntry, more_bytes: int) -> None:
        """Count what an entry holds, while it is here."""
        if self._entries.get(entry.name) is entry:
            entry.counted_bytes += more_bytes
            self.held_bytes += more_bytes

    def make_room(self, reply_bytes: int, more_bytes: int) -> bool:
        """Drop kept replies until ``more_bytes`` fit; tell whether they and the reply may stay."""
        limits = self._limits
        if reply_bytes > limits.max_reply_bytes:
            return False
        while self.held_bytes + more_bytes > limits.total_bytes and self._kept:
            self.forget(next(iter(self._kept.values())))
        return self.held_bytes + more_bytes <= limits.total_bytes

    def keep(self, entry: LocalEntry) -> None:
        """Keep an ended reply until its time is over or its room is needed."""
        entry.compact()
        self._kept[entry.name] = entry
        entry.expiry = self._loop.call_later(self._limits.retention_seconds, self.forget, entry)

    def forget(self, entry: LocalEntry) -> None:
        """Drop an entry; its readers go on with what they hold."""
        if self._entries.get(entry.name) is not entry:
            return
        self.count(entry, -entry.counted_bytes)
        del self._entries[entry.name]
        self._kept.pop(entry.name, None)
        if entry.expiry is not None:
            entry.expiry.cancel()
