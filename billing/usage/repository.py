"""Stores a batch of events exactly once, and the journal position with it. The hot path's SQL.

Rows arrive by COPY in a temporary table and go on from there by INSERT … ON CONFLICT DO NOTHING;
what follows (rollups, amounts owed) is derived only from the rows which that really inserted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql

from billing.clock import from_epoch_us
from billing.usage.event import CloseRecord, event_id_of
from billing.usage.read_journal import JournalPoint

# batch_deltas: what the rows of one transaction add to the sums, by the rollup's key, but of each
# quarter of an hour: local midnights, where windows of budgets begin, lie on those.
_TEMPORARY_TABLES = """
CREATE TEMPORARY TABLE IF NOT EXISTS batch_deltas (
    quarter timestamptz, organization_id text, project_id text, api_key_id text, route text,
    deployment_id text, currency text, requests bigint, input_tokens bigint,
    cached_input_tokens bigint, output_tokens bigint, reasoning_tokens bigint, charge numeric,
    unpriced_requests bigint, voided bigint
) ON COMMIT DELETE ROWS
"""

_INSERT = """
WITH inserted AS (
    INSERT INTO usage_events ({columns})
    SELECT {columns} FROM staged_events
    ON CONFLICT DO NOTHING
    RETURNING started_at, organization_id, project_id, api_key_id, route, deployment_id, currency,
        status, input_tokens, cached_input_tokens, output_tokens, reasoning_tokens, charge
)
INSERT INTO batch_deltas
SELECT date_bin('15 minutes', started_at, timestamptz '1970-01-01 00:00:00+00'), organization_id,
    project_id, api_key_id, route,
    deployment_id, currency, count(*), coalesce(sum(input_tokens), 0),
    coalesce(sum(cached_input_tokens), 0), coalesce(sum(output_tokens), 0),
    coalesce(sum(reasoning_tokens), 0), coalesce(sum(charge), 0),
    count(*) FILTER (WHERE charge IS NULL), count(*) FILTER (WHERE status = 'voided')
FROM inserted
GROUP BY 1, 2, 3, 4, 5, 6, 7
"""


class PositionMovedError(Exception):
    """Another worker stored a part of this journal meanwhile; read on from the stored position."""


@dataclass(frozen=True, slots=True)
class StoredCounts:
    """How many events a batch really added."""

    settled: int
    voided: int


@dataclass(frozen=True, slots=True)
class PositionStep:
    """What a stored batch adds to its journal's row; counts as in ``journal_positions``."""

    journal_id: str
    end: JournalPoint
    opened: int
    settled: int
    voided: int
    duplicates: int
    set_aside: int
    corrupt_records: int
    is_end: bool


def prepare_session(connection: psycopg.Connection[Any], columns: Sequence[str]) -> None:
    """Make this session's temporary tables; ``columns`` are those that :func:`stage_rows` gets."""
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    with connection.transaction():
        connection.execute(_TEMPORARY_TABLES)
        connection.execute(
            sql.SQL(
                "CREATE TEMPORARY TABLE IF NOT EXISTS staged_events ON COMMIT DELETE ROWS"
                " AS SELECT {} FROM usage_events WITH NO DATA"
            ).format(names)
        )


def stage_rows(cursor: psycopg.Cursor[Any], rows: Iterable[str]) -> None:
    """Bring COPY text lines (NULL is an empty field) into the staging table."""
    with cursor.copy("COPY staged_events FROM STDIN (FORMAT text, NULL '')") as copy:
        copy.write("".join(rows))


def insert_staged(cursor: psycopg.Cursor[Any], columns: Sequence[str]) -> StoredCounts:
    """Move the staged rows into ``usage_events`` and note what they add in ``batch_deltas``."""
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    cursor.execute(sql.SQL(_INSERT).format(columns=names))
    cursor.execute(
        "SELECT coalesce(sum(requests - voided), 0)::bigint, coalesce(sum(voided), 0)::bigint"
        " FROM batch_deltas"
    )
    row = cursor.fetchone()
    assert row is not None  # noqa: S101  # an aggregate always gives a row
    return StoredCounts(settled=row[0], voided=row[1])


def find_position(cursor: psycopg.Cursor[Any], journal_id: str) -> tuple[JournalPoint, bool] | None:
    """Return the stored point of a journal and whether it is read to its end; None if unknown."""
    cursor.execute(
        "SELECT segment, next_offset, finished_at IS NOT NULL FROM journal_positions"
        " WHERE journal_id = %s",
        (journal_id,),
    )
    row = cursor.fetchone()
    return None if row is None else (JournalPoint(row[0], row[1]), row[2])


def lock_position(
    cursor: psycopg.Cursor[Any], journal_id: str, start: JournalPoint, *, now: datetime
) -> tuple[JournalPoint, bool]:
    """Lock the journal's row for this transaction, made at ``start`` if new; return as above.

    Whoever holds the row is the only one who stores from this journal.
    """
    cursor.execute(
        "INSERT INTO journal_positions (journal_id, segment, next_offset, created_at, updated_at)"
        " VALUES (%s, %s, %s, %s, %s) ON CONFLICT (journal_id) DO NOTHING",
        (journal_id, start.segment, start.offset, now, now),
    )
    cursor.execute(
        "SELECT segment, next_offset, finished_at IS NOT NULL FROM journal_positions"
        " WHERE journal_id = %s FOR UPDATE",
        (journal_id,),
    )
    row = cursor.fetchone()
    assert row is not None  # noqa: S101  # inserted above
    return JournalPoint(row[0], row[1]), row[2]


def advance_position(cursor: psycopg.Cursor[Any], step: PositionStep, *, now: datetime) -> None:
    """Move the journal's row on, in the transaction that stored the batch."""
    cursor.execute(
        "UPDATE journal_positions SET segment = %s, next_offset = %s, opened = opened + %s,"
        " settled = settled + %s, voided = voided + %s, duplicates = duplicates + %s,"
        " set_aside = set_aside + %s, corrupt_records = corrupt_records + %s, updated_at = %s,"
        " finished_at = CASE WHEN %s THEN %s END WHERE journal_id = %s",
        (
            step.end.segment,
            step.end.offset,
            step.opened,
            step.settled,
            step.voided,
            step.duplicates,
            step.set_aside,
            step.corrupt_records,
            now,
            step.is_end,
            now,
            step.journal_id,
        ),
    )


def find_ended(cursor: psycopg.Cursor[Any], closes: Iterable[CloseRecord]) -> set[str]:
    """Return the request ids of those ``closes`` whose request has ended: stored or set aside."""
    keys = [
        (event_id_of(close.identity.request_id), close.identity.started_at_us) for close in closes
    ]
    cursor.execute(
        "SELECT e.request_id FROM unnest(%s::text[], %s::timestamptz[]) AS wanted (id, at)"
        " JOIN usage_events e ON e.event_id = wanted.id AND e.started_at = wanted.at",
        ([key[0] for key in keys], [from_epoch_us(key[1]) for key in keys]),
    )
    ended = {row[0] for row in cursor}
    cursor.execute(
        "SELECT request_id FROM shadow_calls WHERE request_id = ANY(%s)",
        ([close.identity.request_id for close in closes],),
    )
    ended |= {row[0] for row in cursor}
    cursor.execute(
        "SELECT event_id FROM dead_letters WHERE event_id = ANY(%s)", ([key[0] for key in keys],)
    )
    aside = {row[0] for row in cursor}
    return ended | {
        close.identity.request_id
        for close in closes
        if event_id_of(close.identity.request_id) in aside
    }
