"""Advisory locks of PostgreSQL, ours alone in this database: "forebay" and a number for each use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import psycopg

LOCK_SPACE = 0x666F7265


class LockNumber(IntEnum):
    """What is locked."""

    PARTITIONS = 1
    POSTING = 2
    BUDGET_SET = 3  # which budgets there are; see billing/budgets/README.md
    SPEND_FEED = 4
    ENGINE_COUNTERS = 5
    SHADOW = 6


@contextmanager
def try_advisory_lock(connection: psycopg.Connection[Any], number: LockNumber) -> Iterator[bool]:
    """Hold a session's advisory lock if it is free; yields whether it is ours."""
    row = connection.execute(
        "SELECT pg_try_advisory_lock(%s, %s)", (LOCK_SPACE, number.value)
    ).fetchone()
    is_ours = bool(row and row[0])
    try:
        yield is_ours
    finally:
        if is_ours and not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(%s, %s)", (LOCK_SPACE, number.value))
