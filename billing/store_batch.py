"""One batch of a journal → PostgreSQL, in one transaction: the heart of "exactly once".

Lock the journal's position; if it is where the batch begins, rate and insert the events, add what
was really inserted to rollups, to what projects owe and to the spend of budgets, keep dead letters,
move the position. If it is where the batch ends, an earlier try was committed although its answer
got lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
import psycopg

from billing.budgets.spend import add_deltas_to_budgets
from billing.charging.charge import charge_request
from billing.charging.dead_letters import NewDeadLetter, insert_dead_letters
from billing.charging.event_row import EVENT_COLUMNS, event_row
from billing.charging.reason import DeadLetterReason
from billing.clock import Clock, from_epoch_us
from billing.ledger.project_hours import add_deltas_to_project_hours
from billing.pricing.load_prices import load_prices
from billing.pricing.price_book import OrganizationPrices
from billing.retry import retry_conflicts
from billing.shadow.store_calls import store_calls, store_scores
from billing.usage.event import CloseRecord, RequestIdentity, event_id_of
from billing.usage.parse_records import Damage
from billing.usage.read_journal import JournalBatch, JournalPoint
from billing.usage.repository import (
    PositionMovedError,
    PositionStep,
    advance_position,
    insert_staged,
    lock_position,
    stage_rows,
)
from billing.usage.rollup import add_deltas_to_rollups
from billing.usage.store_feedback import store_feedback

_LOG = logging.getLogger(__name__)

_NO_ROW = "this record makes no row that the database takes"


@dataclass(slots=True)
class _EventRows:
    """Rows to stage, each with the record it came from, and the dead letters beside them."""

    rows: list[str] = field(default_factory=list)
    sources: list[tuple[JournalPoint, CloseRecord]] = field(default_factory=list)
    unrated: list[NewDeadLetter] = field(default_factory=list)  # their event is stored, unrated
    aside: list[NewDeadLetter] = field(default_factory=list)  # there is no event


def store_batch(connection: psycopg.Connection[Any], batch: JournalBatch, clock: Clock) -> None:
    """Store ``batch`` once, however often it is tried.

    Records that the database refuses are set aside as dead letters; the others are stored. Raises
    :class:`PositionMovedError` when another worker stored a part of the journal meanwhile, and
    :class:`psycopg.OperationalError` when the connection is lost (the outcome is then unknown:
    call again on a new connection).
    """
    refused: dict[JournalPoint, str] = {}
    try:
        retry_conflicts(lambda: _store(connection, batch, refused, clock()))
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        _LOG.warning("journal %s: the database refused a batch: %s", batch.journal_id, error)
        refused = _find_refused(connection, batch, clock())
        retry_conflicts(lambda: _store(connection, batch, refused, clock()))


def _store(
    connection: psycopg.Connection[Any],
    batch: JournalBatch,
    refused: dict[JournalPoint, str],
    now: datetime,
) -> None:
    with connection.transaction(), connection.cursor() as cursor:
        stored, is_finished = lock_position(cursor, batch.journal_id, batch.start, now=now)
        if stored != batch.start or is_finished:
            if (stored, is_finished) == (batch.end, batch.is_end):
                return  # a try whose answer was lost had been committed
            raise PositionMovedError(batch.journal_id)
        events = _make_rows(cursor, batch, refused)
        settled = voided = 0
        if events.rows:
            stage_rows(cursor, events.rows)
            counts = insert_staged(cursor, EVENT_COLUMNS)
            settled, voided = counts.settled, counts.voided
            add_deltas_to_rollups(cursor)
            add_deltas_to_project_hours(cursor)
            add_deltas_to_budgets(cursor)
        store_feedback(cursor, batch.feedback, now=now)
        shadows = [placed for placed in batch.closes if placed[1].identity.shadow is not None]
        calls = store_calls(cursor, shadows, batch.journal_id, now=now)
        store_scores(cursor, batch.shadow_scores)
        events.aside += [_unstorable_letter(*placed, _NO_ROW) for placed in calls.refused]
        duplicates = len(events.rows) - settled - voided
        letters = events.aside + [_damage_letter(*damage) for damage in batch.damages]
        if duplicates:
            letters += _foreign_duplicates(cursor, events)
        letters += _still_unrated(cursor, events.unrated) if duplicates else events.unrated
        if letters:
            insert_dead_letters(cursor, batch.journal_id, letters, now=now)
        step = PositionStep(
            journal_id=batch.journal_id,
            end=batch.end,
            opened=batch.opened,
            settled=settled + calls.settled,
            voided=voided + calls.voided,
            duplicates=duplicates + calls.duplicates,
            set_aside=len(events.aside),
            corrupt_records=len(batch.damages),
            is_end=batch.is_end,
        )
        advance_position(cursor, step, now=now)


def _make_rows(
    cursor: psycopg.Cursor[Any], batch: JournalBatch, refused: dict[JournalPoint, str]
) -> _EventRows:
    events = _EventRows()
    closes = [placed for placed in batch.closes if placed[1].identity.shadow is None]
    if not closes:
        return events
    wanted = {pair for _, close in closes for pair in _priced_routes(close.identity)}
    prices = load_prices(cursor, _storable(wanted))
    for point, close in closes:
        if point in refused:
            events.aside.append(_unstorable_letter(point, close, refused[point]))
            continue
        try:
            _add_row(events, point, close, prices, batch.journal_id)
        except (OverflowError, ValueError):  # a time that no calendar has, a share that is none
            events.aside.append(_unstorable_letter(point, close, _NO_ROW))
    return events


def _priced_routes(identity: RequestIdentity) -> Iterator[tuple[str, str]]:
    """Yield organization and route, of each route whose price may count."""
    yield identity.organization_id, identity.route_id
    if identity.tier is not None:
        yield identity.organization_id, identity.tier.requested_route_id
        yield identity.organization_id, identity.tier.counterfactual_route_id


def _storable(wanted: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Leave out ids that PostgreSQL cannot even be asked about."""
    return {pair for pair in wanted if "\0" not in pair[0] and "\0" not in pair[1]}


def _add_row(
    events: _EventRows,
    point: JournalPoint,
    close: CloseRecord,
    prices: dict[str, OrganizationPrices],
    journal_id: str,
) -> None:
    identity = close.identity
    started_at = from_epoch_us(identity.started_at_us)
    charge = charge_request(close, prices.get(identity.organization_id), started_at)
    events.rows.append(event_row(close, charge, started_at, journal_id))
    events.sources.append((point, close))
    if charge.reason is not None:
        events.unrated.append(
            _letter(point, close, charge.reason, charge.detail, started_at=started_at)
        )


def _letter(
    point: JournalPoint,
    close: CloseRecord,
    reason: DeadLetterReason,
    detail: str,
    *,
    started_at: datetime | None,
) -> NewDeadLetter:
    identity = close.identity
    return NewDeadLetter(
        reason=reason,
        detail=detail,
        event_id=_clean(event_id_of(identity.request_id)),
        event_started_at=started_at,
        organization_id=_clean(identity.organization_id),
        project_id=_clean(identity.project_id),
        route=_clean(identity.route),
        segment=point.segment,
        byte_offset=point.offset,
        payload=None
        if reason is DeadLetterReason.NO_PRICE
        else msgspec.json.encode(close).decode(),  # JSON escapes what a text column refuses
    )


def _clean(text: str) -> str:
    return text.replace("\0", "\ufffd")


def _unstorable_letter(point: JournalPoint, close: CloseRecord, detail: str) -> NewDeadLetter:
    return _letter(point, close, DeadLetterReason.UNSTORABLE, _clean(detail), started_at=None)


def _damage_letter(segment: int, damage: Damage) -> NewDeadLetter:
    return NewDeadLetter(
        reason=DeadLetterReason.CORRUPT_JOURNAL,
        detail=damage.detail,
        segment=segment,
        byte_offset=damage.offset,
        payload=damage.kept.replace(b"\0", b"\\x00").decode("utf-8", "backslashreplace"),
    )


def _still_unrated(
    cursor: psycopg.Cursor[Any], letters: list[NewDeadLetter]
) -> list[NewDeadLetter]:
    """Return the letters whose stored event is unrated: a duplicate may have been rated before."""
    cursor.execute(
        "SELECT event_id FROM usage_events WHERE event_id = ANY(%s) AND charge IS NULL",
        ([letter.event_id for letter in letters],),
    )
    unrated = {row[0] for row in cursor}
    return [letter for letter in letters if letter.event_id in unrated]


def _foreign_duplicates(cursor: psycopg.Cursor[Any], events: _EventRows) -> list[NewDeadLetter]:
    """Return a letter for each staged row whose event id another project's event has."""
    cursor.execute(
        "SELECT s.event_id, s.project_id FROM staged_events s"
        " JOIN usage_events e USING (event_id, started_at) WHERE e.project_id <> s.project_id"
    )
    foreign = {(row[0], row[1]) for row in cursor}
    return [
        _letter(
            point,
            close,
            DeadLetterReason.FOREIGN_DUPLICATE,
            "another project's event has this id; this request is not charged",
            started_at=from_epoch_us(close.identity.started_at_us),
        )
        for point, close in events.sources
        if (event_id_of(close.identity.request_id), close.identity.project_id) in foreign
    ]


def _find_refused(
    connection: psycopg.Connection[Any], batch: JournalBatch, now: datetime
) -> dict[JournalPoint, str]:
    """Find which records the database refuses, by halves, in a transaction that is undone."""
    refused: dict[JournalPoint, str] = {}
    with connection.transaction(force_rollback=True), connection.cursor() as cursor:
        lock_position(cursor, batch.journal_id, batch.start, now=now)
        events = _make_rows(cursor, batch, {})
        pending = [(0, len(events.rows))] if events.rows else []
        while pending:
            begin, end = pending.pop()
            try:
                with connection.transaction():
                    stage_rows(cursor, events.rows[begin:end])
                    insert_staged(cursor, EVENT_COLUMNS)
                    cursor.execute("DELETE FROM staged_events; DELETE FROM batch_deltas")
            except (psycopg.DataError, psycopg.IntegrityError) as error:
                if end - begin == 1:
                    refused[events.sources[begin][0]] = error.diag.message_primary or _NO_ROW
                else:
                    middle = (begin + end) // 2
                    pending += [(begin, middle), (middle, end)]
    return refused
