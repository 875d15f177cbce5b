"""Holds the current Snapshot in a data-plane worker: swapped whole, last good one kept."""

from __future__ import annotations

import logging
from collections.abc import Callable

from gateway.snapshot.codec import SnapshotError, decode_snapshot, decode_version
from gateway.snapshot.model import Snapshot

_LOG = logging.getLogger(__name__)


class SnapshotHolder:
    """The current Snapshot; None until the first good one came.

    ``on_swap`` is called with each new one, in the thread that offered it.
    """

    def __init__(self, on_swap: Callable[[Snapshot], None]) -> None:
        self._on_swap = on_swap
        self.current: Snapshot | None = None

    def offer(self, data: bytes) -> bool:
        """Take ``data`` if it is a good Snapshot and newer than the current one.

        Returns whether it was taken. What cannot be used is logged and left; traffic goes on.
        """
        try:
            if self.current is not None and decode_version(data) <= self.current.version:
                return False
            snapshot = decode_snapshot(data)
        except SnapshotError as error:
            _LOG.warning("snapshot: kept the last good one: %s", error)
            return False
        self._on_swap(snapshot)
        self.current = snapshot
        return True
