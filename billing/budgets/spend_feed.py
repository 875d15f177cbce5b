"""What PostgreSQL knows of each budget, published by the billing worker about once a second.

Plain data, shared by the worker (writer) and the data plane (reader). Sums and journal positions
are of one moment, so a data-plane worker knows exactly which of its own settlements are in the
sums: those whose close record ends at or before the position of its journal.
"""

from __future__ import annotations

import msgspec

SCHEMA_VERSION = 1
REDIS_KEY = "{forebay}:spend"
FILE_NAME = "spend.json"  # in the state directory, renamed into place


class WindowSpend(msgspec.Struct, array_like=True, frozen=True):
    """What was charged in the latest window of a budget that had any charge."""

    window_start_us: int
    amount: str  # exact decimal text


class SpendFeed(msgspec.Struct, frozen=True):
    """One moment of the database."""

    version: int  # microseconds since the epoch, by the database's clock; grows
    positions: dict[str, tuple[int, int]] = {}  # journal id: (segment, offset) stored up to
    finished: tuple[str, ...] = ()  # journals that are stored whole, of the last day
    spent: dict[str, WindowSpend] = {}  # by budget id; absent: nothing was charged
    # What shadow evaluation has cost today (UTC), by "route id/currency" of the route asked for.
    shadow: dict[str, WindowSpend] = {}
    schema_version: int = SCHEMA_VERSION
