"""Which replica served a session last: bounded, the least recently used is forgotten. Pure."""

from __future__ import annotations

from collections import OrderedDict

MAX_SESSIONS = 10_000  # of one deployment in one worker; about 1.5 MB


class SessionTable:
    """Session hash to replica id."""

    __slots__ = ("_holders", "_limit")

    def __init__(self, limit: int = MAX_SESSIONS) -> None:
        self._limit = limit
        self._holders: OrderedDict[int, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    def find(self, session: int) -> str | None:
        """Return the replica that served the session last; it may be gone or forgotten by now."""
        return self._holders.get(session)

    def record(self, session: int, replica_id: str) -> None:
        """The session goes there now."""
        holders = self._holders
        holders[session] = replica_id
        holders.move_to_end(session)
        if len(holders) > self._limit:
            holders.popitem(last=False)
