"""Keeps one place where Snapshots are published at the database's version."""

from __future__ import annotations

import asyncio
import logging

from sqlalchemy.exc import SQLAlchemyError

from billing.clock import Clock
from gateway.controlplane.build_snapshot import build_snapshot
from gateway.controlplane.changes import read_version, take_next_version
from gateway.controlplane.classifiers_api.repository import list_current
from gateway.controlplane.database import Database
from gateway.controlplane.identity.repository import has_rotated_keys
from gateway.controlplane.publish_weights import WeightsPublisher
from gateway.snapshot.codec import encode_snapshot
from gateway.snapshot.publish import SnapshotPlace, SnapshotPublishError

_log = logging.getLogger(__name__)


class PlacePublisher:
    """Publishes to one place, which may fail or hang without holding up another."""

    def __init__(self, database: Database, place: SnapshotPlace, *, clock: Clock) -> None:
        self._database = database
        self._place = place
        self._clock = clock
        self._weights = WeightsPublisher(database, place.weights, place_name=place.name)
        self._turn = asyncio.Lock()
        self._is_failing = False
        self.published_version: int | None = None  # that the place was last seen to hold

    async def publish(self) -> None:
        """Bring the place to the database's version. Failures are logged, never raised."""
        async with self._turn:
            try:
                self.published_version = await self._bring_up_to_date()
            except SnapshotPublishError as error:
                self._note_failure(str(error))
            except SQLAlchemyError as error:
                # Its text may hold the database's address.
                self._note_failure(type(error).__name__)
            except Exception:  # noqa: BLE001 - edge of a loop that must outlive anything
                _log.exception("publishing the snapshot to %s failed", self._place.name)
            else:
                self._note_success()

    async def close(self) -> None:
        """Give back connections."""
        await self._place.close()

    async def _bring_up_to_date(self) -> int:
        # The place first: if it is ahead then, that is not because we were overtaken meanwhile.
        held = await self._place.find_version()
        async with self._database.read() as session:
            version = await read_version(session)
            weights = {one.sha256 for one in await list_current(session)}
            # Once for each process: what the release before published lacks the lineages, by which
            # rotated keys keep their limits.
            is_doubtful = self.published_version is None and await has_rotated_keys(session)
        if held is not None and held > version:
            _log.warning("%s holds a newer snapshot than the database's", self._place.name)
            await self._overtake(held)
        elif held == version and is_doubtful:
            await self._overtake(held)
        elif held == version:
            await self._weights.put_missing(weights)
            return version
        async with self._database.read_consistently() as session:
            snapshot = await build_snapshot(session, now=self._clock())
        await self._weights.put_missing({one.sha256 for one in snapshot.classifiers.values()})
        if await self._place.publish(encode_snapshot(snapshot), snapshot.version):
            _log.info("snapshot %d published to %s", snapshot.version, self._place.name)
            await self._weights.remove_unused()
        return snapshot.version

    async def _overtake(self, held: int) -> None:
        """Raise the database's version past the published one, which is another's.

        Of another database, before one was restored from a backup, or of another release.
        """
        async with self._database.write() as session:
            await take_next_version(session, past=held)

    def _note_failure(self, reason: str) -> None:
        if not self._is_failing:
            _log.warning("no snapshot to %s: %s; trying on", self._place.name, reason)
        self._is_failing = True

    def _note_success(self) -> None:
        if self._is_failing:
            _log.warning("snapshots are published to %s again", self._place.name)
        self._is_failing = False
