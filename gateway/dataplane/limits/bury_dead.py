"""Drops what dead workers have left in Redis: their holds at once, what they charged when stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.dataplane.limits.budget_state import spent_nano
from gateway.dataplane.limits.encode_own import chunks
from gateway.dataplane.limits.redis_scripts import (
    DEAD,
    REGISTRY,
    STATE,
    RedisScripts,
    split_window_key,
)

if TYPE_CHECKING:
    from billing.budgets.spend_feed import SpendFeed
    from gateway.dataplane.limits.resp_connection import RespConnection


async def bury_dead(
    connection: RespConnection, scripts: RedisScripts, feed: SpendFeed | None, dead: list[Any]
) -> None:
    """Go over every budget window for the journals in ``dead`` (journal, how far, …).

    The ledger's sum is raised first, so that nobody sees too little. Raises ``RedisAwayError``.
    """
    finished = set(feed.finished) if feed is not None else set()
    stages = dict(zip(dead[::2], dead[1::2], strict=True))
    stored = [journal for journal in stages if journal.decode() in finished]
    lost = [
        journal for journal, stage in stages.items() if stage == b"held" and journal not in stored
    ]
    if not stored and not lost:
        return
    names = (b"%d" % len(lost), *lost, b"%d" % len(stored), *stored)
    keys = await connection.ask(b"ZRANGE", REGISTRY, b"0", b"-1")
    for some in chunks(keys):
        sums: list[bytes] = []
        for key in some:
            sums += _sum_of(feed, key)
        await connection.ask_raw(scripts.call("bury", (STATE, DEAD, *some), *names, *sums))
    await connection.ask_raw(
        scripts.call("buried", (STATE, DEAD), b"%d" % len(lost), *lost, *stored)
    )


def _sum_of(feed: SpendFeed | None, key: bytes) -> tuple[bytes, bytes]:
    """Return the feed's version and sum for a window; version 0: the feed says nothing of it."""
    if feed is None:
        return b"0", b"0"
    budget_id, start_us = split_window_key(key)
    spend = feed.spent.get(budget_id)
    if spend is not None and spend.window_start_us > start_us:
        return b"0", b"0"  # an earlier window: what is stored was right
    is_of_it = spend is not None and spend.window_start_us == start_us
    amount = spent_nano(spend.amount) if spend is not None and is_of_it else 0
    return b"%d" % feed.version, b"%d" % amount
