"""Daily partitions of ``usage_events``, made ahead of their day.

What no daily partition takes goes into the default one: late days, wrong clocks, a worker that was
away for a week. A day that has rows there stays there.
"""

from __future__ import annotations

import logging
from datetime import date, timedelta
from typing import Any

import psycopg
from psycopg import sql

_LOG = logging.getLogger(__name__)

DAYS_AHEAD = 7
# Attaching a partition locks the whole table for a moment; rather no partition today than a queue
# of writers behind us.
_LOCK_TIMEOUT = "2s"


def partition_name(day: date) -> str:
    """Return the name of the partition of ``day`` (UTC): ``usage_events_20261129``."""
    return f"usage_events_{day:%Y%m%d}"


def make_partitions(connection: psycopg.Connection[Any], today: date) -> list[str]:
    """Make the missing partitions from yesterday to a week ahead; return the names of new ones.

    Each in a transaction of its own; one that cannot be made now is logged and left for later.
    """
    made = []
    for offset in range(-1, DAYS_AHEAD + 1):
        day = today + timedelta(days=offset)
        try:
            with connection.transaction():
                if _make_partition(connection, day):
                    made.append(partition_name(day))
        except psycopg.errors.CheckViolation:
            _LOG.info("usage events of %s stay in the default partition", day)
        except psycopg.errors.LockNotAvailable:
            _LOG.warning("no partition for %s yet: the table is busy", day)
    return made


def _make_partition(connection: psycopg.Connection[Any], day: date) -> bool:
    name = partition_name(day)
    found = connection.execute("SELECT to_regclass(%s)", (name,)).fetchone()
    if found is not None and found[0] is not None:
        return False
    connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(_LOCK_TIMEOUT))
    connection.execute(
        sql.SQL("CREATE TABLE {} PARTITION OF usage_events FOR VALUES FROM ({}) TO ({})").format(
            sql.Identifier(name),
            sql.Literal(f"{day.isoformat()} 00:00:00+00"),
            sql.Literal(f"{(day + timedelta(days=1)).isoformat()} 00:00:00+00"),
        )
    )
    return True
