"""Keeps one place at the weights that the Snapshot names. A failure holds up no Snapshot."""

from __future__ import annotations

import logging
from collections.abc import Collection

from gateway.controlplane.classifiers_api import repository
from gateway.controlplane.database import Database
from gateway.snapshot.weights import WeightsPlace, WeightsPlaceError

_log = logging.getLogger(__name__)


class WeightsPublisher:
    """Puts weights into one place before a Snapshot names them there, and takes unused ones away."""

    def __init__(self, database: Database, place: WeightsPlace, *, place_name: str) -> None:
        self._database = database
        self._place = place
        self._name = place_name
        self._put: set[str] = set()  # by us: what was there before may be damaged
        self._is_failing = False

    async def put_missing(self, wanted: Collection[str]) -> None:
        """Put those of ``wanted`` (SHA-256) that are not there. Failures of the place are logged."""
        if not wanted:
            return
        try:
            missing = set(wanted) - (await self._place.list_held() & self._put)
            for sha256 in sorted(missing):
                async with self._database.read() as session:
                    data = await repository.find_weights(session, sha256)
                if data is not None:
                    await self._place.put(sha256, data)
                    self._put.add(sha256)
                    _log.info("weights %s put to %s", sha256[:12], self._name)
        except WeightsPlaceError as error:
            self._note_failure(error)
        else:
            self._is_failing = False

    async def remove_unused(self) -> None:
        """Take away what is in effect nowhere. A worker that still wanted it keeps what it serves.

        What is held is read first: all of that was committed before, so that what is in effect,
        read after it, names whatever another process has just put.
        """
        try:
            held = await self._place.list_held()
            if held:
                async with self._database.read() as session:
                    current = await repository.list_current(session)
                await self._place.remove(held - {version.sha256 for version in current})
        except WeightsPlaceError as error:
            self._note_failure(error)

    def _note_failure(self, error: WeightsPlaceError) -> None:
        if not self._is_failing:
            _log.warning("no weights to %s: %s; trying on", self._name, error)
        self._is_failing = True
