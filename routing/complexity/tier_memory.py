"""Which tier a conversation is on, as one worker knows it: bounded, and forgotten after a while. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

MAX_CONVERSATIONS = 20_000  # in one worker; about 5 MB
FORGET_SECONDS = 3600.0  # since its latest request


class Kept(NamedTuple):
    """Tiers by name: a policy may change while a conversation goes on."""

    floor: str  # it does not go below it at a turn's beginning
    served: str  # its latest request
    seen_at: float  # seconds


class TierMemory:
    """A conversation's digest to its tiers."""

    __slots__ = ("_kept", "_limit")

    def __init__(self, limit: int = MAX_CONVERSATIONS) -> None:
        self._limit = limit
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, conversation: bytes, now: float) -> Kept | None:
        """Return what is known of a conversation; None where that is nothing, or long ago."""
        kept = self._kept.get(conversation)
        if kept is None or now - kept.seen_at <= FORGET_SECONDS:
            return kept
        del self._kept[conversation]
        return None

    def record(self, conversation: bytes, *, floor: str, served: str, now: float) -> bytes | None:
        """A request of the conversation goes to ``served`` now; return one that made room, if any."""
        kept = self._kept
        kept[conversation] = Kept(floor, served, now)
        kept.move_to_end(conversation)
        return kept.popitem(last=False)[0] if len(kept) > self._limit else None

    def move(self, conversation: bytes, served: str) -> None:
        """Its latest request was served by another tier after all."""
        kept = self._kept.get(conversation)
        if kept is not None:
            self._kept[conversation] = kept._replace(served=served)
