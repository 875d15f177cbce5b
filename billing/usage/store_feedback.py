"""Feedback from a journal → PostgreSQL, in the transaction that stores the journal's batch.

One row a request: what was said last counts. Storing a record again changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import psycopg

from billing.clock import from_epoch_us
from billing.usage.event import FeedbackRecord

_LOG = logging.getLogger(__name__)

_UPSERT = """
INSERT INTO feedback AS held (project_id, request_id, organization_id, api_key_id, score, comment,
    given_at, stored_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (project_id, request_id) DO UPDATE SET
    api_key_id = excluded.api_key_id, score = excluded.score, comment = excluded.comment,
    given_at = excluded.given_at, stored_at = excluded.stored_at
WHERE excluded.given_at > held.given_at
"""


def store_feedback(
    cursor: psycopg.Cursor[Any], records: Sequence[FeedbackRecord], *, now: datetime
) -> None:
    """Store the records; one that no row can be made of is logged and left, not to hold up usage."""
    rows = [row for record in records if (row := _make_row(record, now)) is not None]
    if rows:
        cursor.executemany(_UPSERT, rows)


def _make_row(record: FeedbackRecord, now: datetime) -> tuple[Any, ...] | None:
    try:
        given_at = from_epoch_us(record.at_us)
    except (OverflowError, ValueError):
        given_at = None
    texts = (record.project_id, record.request_id, record.organization_id, record.api_key_id)
    comment = record.comment
    is_storable = not any("\0" in text for text in texts) and 0 <= record.score <= 1
    if given_at is None or not is_storable:
        _LOG.warning("feedback on %r cannot be stored; left out", record.request_id)
        return None
    kept = None if comment is None else comment.replace("\0", "\ufffd")
    return (*texts, record.score, kept, given_at, now)
