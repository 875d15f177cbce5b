"""Which tier a conversation is on: in this worker's memory, and through Redis in that of all workers."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from gateway.dataplane.limits.local_limiter import LocalLimiter
from routing.complexity.tier_memory import TierMemory
from routing.complexity.tier_policy import Remembered

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from gateway.dataplane.config import DataPlaneConfig
    from gateway.dataplane.limits.redis_limiter import RedisLimiter
    from gateway.dataplane.shared_tiers import SharedTiers
    from routing.complexity.tier_memory import Kept

DIGEST_BYTES = 16


class ConversationTiers:
    """What a worker knows of conversations; ``shared``: None where it is alone.

    Tiers are places among ``names``, all of a policy's, the lowest first.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: SharedTiers | None = None,
        *,
        secret: str | None = None,
        local: TierMemory | None = None,
    ) -> None:
        """``secret``: all workers have the same; without it nobody can try texts on a digest."""
        self._loop = loop
        self._shared = shared
        self._local = TierMemory() if local is None else local
        self._key = b"" if secret is None else hashlib.sha256(secret.encode()).digest()

    def digest(self, *parts: str | bytes | None) -> bytes:
        """Return what a conversation is known by: of the same parts the same in every worker."""
        hashed = hashlib.blake2b(key=self._key, digest_size=DIGEST_BYTES)
        for part in parts:
            if part is None:
                hashed.update(b"-")
                continue
            raw = part.encode() if isinstance(part, str) else part
            hashed.update(b"%d:" % len(raw))
            hashed.update(raw)
        return hashed.digest()

    async def recall(
        self, conversation: bytes, names: Sequence[str], *, only_floor: bool = False
    ) -> Remembered | None:
        """Return what is known, without waiting long for it.

        ``only_floor``: nothing else matters, and it can only have gone up since.
        """
        kept = self._local.find(conversation, self._loop.time())
        known = None if kept is None else _as_places(kept.floor, kept.served, names)
        shared = self._shared
        if shared is None or (only_floor and known is not None and known.floor == len(names) - 1):
            return known
        told = await shared.ask(conversation)
        found = None if told is None else _as_places(*told, names)
        if found is None or kept is None or known is None:
            return found or known
        if kept.seen_at > shared.unheard_at:
            return found  # all that this worker knew is in it
        return Remembered(max(found.floor, known.floor), found.served)

    def record(
        self,
        conversation: bytes,
        names: Sequence[str],
        *,
        floor: int,
        served: int,
        is_new: bool = False,
    ) -> None:
        """A request goes to ``served`` now. ``is_new``: a floor of before was another's."""
        out = self._local.record(
            conversation, floor=names[floor], served=names[served], now=self._loop.time()
        )
        if self._shared is None:
            return
        above = () if is_new else names[floor + 1 :]
        self._shared.record(conversation, floor=names[floor], served=names[served], above=above)
        if out is not None:
            self._shared.drop(out)

    def move(self, conversation: bytes, served: str) -> None:
        """Its latest request was served by another tier after all."""
        self._local.move(conversation, served)
        if self._shared is not None:
            self._shared.move(conversation, served)

    def hold_up(self, conversation: bytes, names: Sequence[str], place: int) -> None:
        """Its latest request was served by the tier ``place`` after all, and it stays there."""
        kept: Kept | None = self._local.find(conversation, self._loop.time())
        known = None if kept is None else _as_places(kept.floor, kept.served, names)
        floor = place if known is None else max(place, known.floor)
        self.record(conversation, names, floor=floor, served=place)


def _as_places(floor: str | None, served: str | None, names: Sequence[str]) -> Remembered | None:
    """Return both as places among ``names``; None: nothing is known, or tiers of another policy."""
    if floor is None or served is None or floor not in names or served not in names:
        return None
    return Remembered(names.index(floor), names.index(served))


def make_conversation_tiers(
    config: DataPlaneConfig,
    loop: asyncio.AbstractEventLoop,
    limiter: LocalLimiter | RedisLimiter,
    journal_id: str,
) -> ConversationTiers:
    """Return what a worker knows: with the others over the limiter's connection, if it has one."""
    if isinstance(limiter, LocalLimiter):
        return ConversationTiers(loop, secret=config.internal_token)
    from gateway.dataplane.shared_tiers import SharedTiers  # noqa: PLC0415 - slow to import

    shared = SharedTiers(
        limiter.find_connection,
        loop,
        worker=journal_id,
        recall_seconds=config.tier_recall_seconds,
    )
    return ConversationTiers(loop, shared, secret=config.internal_token)
