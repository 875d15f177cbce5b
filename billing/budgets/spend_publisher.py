"""Publishes the spend feed about once a second, when the database has changed.

Sums and journal positions are read in one REPEATABLE READ transaction, so they are of one moment.
An advisory lock, held around that, makes versions grow in the order of those moments.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg
from psycopg import IsolationLevel

from billing.advisory_locks import LockNumber, try_advisory_lock
from billing.budgets.spend_feed import SpendFeed, WindowSpend
from billing.budgets.spend_places import SpendPlace
from billing.clock import to_epoch_us
from billing.money import format_amount

_PUBLISH_SECONDS = 1.0
# Also unchanged: a Redis that came back empty gets it again.
_REPEAT_SECONDS = 5.0
_BUSY_SECONDS = 0.05  # another worker is at it

_POSITIONS = """
SELECT journal_id, segment, next_offset, finished_at IS NOT NULL FROM journal_positions
WHERE finished_at IS NULL OR finished_at > now() - interval '1 day' ORDER BY 1
"""
# The latest window that has begun: an event of a wrong clock must not hide what counts today.
_SPENT = """
SELECT b.id, s.window_start, s.spent FROM budgets b CROSS JOIN LATERAL (
    SELECT window_start, spent FROM budget_spend
    WHERE budget_id = b.id AND window_start <= now() ORDER BY window_start DESC LIMIT 1
) AS s
ORDER BY 1
"""
_SHADOW = """
SELECT requested_route_id || '/' || currency, date_trunc('day', now(), 'UTC'), sum(charge)
FROM shadow_calls
WHERE started_at >= date_trunc('day', now(), 'UTC') AND charge > 0 AND kind <> 'cascade'
GROUP BY 1 ORDER BY 1
"""
# Not the clock alone: it may be set back. A sequence, unlike a row, is not part of the moment that
# the transaction sees.
_NEXT_VERSION = """
SELECT setval('spend_feed_version', greatest(nextval('spend_feed_version'),
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint))
"""

_Content = tuple[
    dict[str, tuple[int, int]], tuple[str, ...], dict[str, WindowSpend], dict[str, WindowSpend]
]


class SpendPublisher:
    """Remembers what was published last; :meth:`publish_if_due` is called between batches."""

    def __init__(self, places: Sequence[SpendPlace]) -> None:
        self._places = places
        self._due = 0.0
        self._repeat_due = 0.0
        self._seen_moment = ""
        self._content: _Content | None = None

    def is_due(self) -> bool:
        """Say whether it is time to look again."""
        return bool(self._places) and time.monotonic() >= self._due

    def publish(self, connection: psycopg.Connection[Any]) -> None:
        """Publish the feed of this moment if it differs from the last, or that is long ago.

        May be repeated after any failure.
        """
        if not self._places:
            return
        now = time.monotonic()
        with try_advisory_lock(connection, LockNumber.SPEND_FEED) as is_ours:
            if not is_ours:
                self._due = now + _BUSY_SECONDS
                return
            self._due = now + _PUBLISH_SECONDS
            feed = self._read_news(connection, is_repeat=now >= self._repeat_due)
        if feed is None:
            return
        data = msgspec.json.encode(feed)
        for place in self._places:
            place.publish(data, feed.version)
        self._repeat_due = now + _REPEAT_SECONDS

    def close(self) -> None:
        """Give back connections."""
        for place in self._places:
            place.close()

    def _read_news(
        self, connection: psycopg.Connection[Any], *, is_repeat: bool
    ) -> SpendFeed | None:
        """Return the feed of this moment; None when it is what was published already."""
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        try:
            with connection.transaction(), connection.cursor() as cursor:
                moment = _scalar(cursor, "SELECT pg_current_snapshot()::text")
                if moment == self._seen_moment and not is_repeat:
                    return None  # no transaction ended since: nothing can have changed
                content = _read_content(cursor)
                is_news = content != self._content or is_repeat
                version = _scalar(cursor, _NEXT_VERSION) if is_news else 0
        finally:
            if not connection.closed:
                connection.isolation_level = None
        self._seen_moment = moment
        if not is_news:
            return None
        self._content = content
        positions, finished, spent, shadow = content
        return SpendFeed(
            version=version, positions=positions, finished=finished, spent=spent, shadow=shadow
        )


def _read_content(cursor: psycopg.Cursor[Any]) -> _Content:
    positions: dict[str, tuple[int, int]] = {}
    finished: list[str] = []
    for journal_id, segment, offset, is_finished in cursor.execute(_POSITIONS.encode()):
        if is_finished:
            finished.append(journal_id)
        else:
            positions[journal_id] = (segment, offset)
    return positions, tuple(finished), _read_spend(cursor, _SPENT), _read_spend(cursor, _SHADOW)


def _read_spend(cursor: psycopg.Cursor[Any], query: str) -> dict[str, WindowSpend]:
    return {
        key: WindowSpend(to_epoch_us(window_start), format_amount(amount))
        for key, window_start, amount in cursor.execute(query.encode())
    }


def _scalar(cursor: psycopg.Cursor[Any], query: str) -> Any:
    row = cursor.execute(query.encode()).fetchone()
    assert row is not None  # noqa: S101  # each of ours gives one row
    return row[0]
