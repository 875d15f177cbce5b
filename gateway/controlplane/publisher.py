"""Keeps every place where Snapshots are published at the database's version.

A change is published as soon as its transaction has committed, before its reply. Whatever that
misses (the process died in between, another process committed, Redis came back empty, a place could
not be reached) the loop finds within one poll, because it compares versions and trusts no memory
of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.controlplane.publish_to_place import PlacePublisher

# A reply waits no longer than this for its change to be out; the loop goes on trying.
_REPLY_WAIT_SECONDS = 2.0


class Publisher:
    """Publishes Snapshots of one database to all places."""

    def __init__(self, places: Sequence[PlacePublisher], *, poll_seconds: float) -> None:
        self._places = places
        self._poll_seconds = poll_seconds
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_published(self) -> bool:
        """Say whether a place has held a Snapshot of this database: the others may be away for long."""
        published = [place.published_version is not None for place in self._places]
        return any(published) or not published

    async def run(self) -> None:
        """Keep the places at the database's version until cancelled."""
        async with asyncio.TaskGroup() as group:
            for place in self._places:
                group.create_task(self._run(place))

    async def _run(self, place: PlacePublisher) -> None:
        task = asyncio.current_task()
        # Asked each time: before Python 3.12 `asyncio.wait_for`, which redis-py uses, may swallow
        # a cancellation.
        while task is None or not task.cancelling():
            await place.publish()
            await asyncio.sleep(self._poll_seconds)

    async def publish_soon(self) -> None:
        """Publish what is committed; return when it is out, at the latest after two seconds."""
        if not self._places:
            return
        # Tasks of their own: the client may hang up, what it changed is published all the same.
        tasks = {asyncio.create_task(place.publish()) for place in self._places}
        for task in tasks:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await asyncio.wait(tasks, timeout=_REPLY_WAIT_SECONDS)

    async def close(self) -> None:
        """Let what is being published come to its end, then give back connections."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_REPLY_WAIT_SECONDS)
        for place in self._places:
            await place.close()
