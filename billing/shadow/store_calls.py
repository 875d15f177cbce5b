"""Shadow calls and scores from a journal → PostgreSQL, in the transaction that stores its batch.

A call is rated like a request of its organization at the price of the route that was asked, and
stored apart from usage. Storing one again changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

import psycopg

from billing.charging.charge import charge_request
from billing.clock import from_epoch_us
from billing.pricing.load_prices import load_prices
from billing.pricing.price_book import OrganizationPrices
from billing.usage.event import CloseRecord, RequestStatus, ShadowScoreRecord
from billing.usage.read_journal import JournalPoint

_LOG = logging.getLogger(__name__)

PlacedClose = tuple[JournalPoint, CloseRecord]

_CALL = """
INSERT INTO shadow_calls (request_id, client_request_id, kind, started_at, organization_id,
    project_id, requested_route_id, requested_route, route_id, route, deployment_id, replica_id,
    status, http_status, attempts, error_code, input_tokens, cached_input_tokens, output_tokens,
    reasoning_tokens, price_id, currency, charge, unrated_reason, finished_at, journal_id,
    recorded_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,
    %s, %s, %s, %s)
ON CONFLICT (request_id) DO NOTHING
"""

_SCORE = """
INSERT INTO shadow_scores (project_id, request_id, organization_id, requested_route_id,
    requested_route, served_tier, lower_tier, upper_tier, method, lower_quality, upper_quality,
    tier_score, lower_charge, upper_charge, currency, scored_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (project_id, request_id) DO NOTHING
"""


@dataclass(slots=True)
class StoredCalls:
    """What became of a batch's shadow calls, counted as their journal counts requests."""

    settled: int = 0
    voided: int = 0
    duplicates: int = 0
    refused: list[PlacedClose] = field(default_factory=list)


def store_calls(
    cursor: psycopg.Cursor[Any], calls: Sequence[PlacedClose], journal_id: str, *, now: datetime
) -> StoredCalls:
    """Store the closes of shadow calls; those that no row can be made of are ``refused``."""
    stored = StoredCalls()
    if not calls:
        return stored
    wanted = {(close.identity.organization_id, close.identity.route_id) for _, close in calls}
    prices = load_prices(cursor, {pair for pair in wanted if "\0" not in "".join(pair)})
    for placed in calls:
        close = placed[1]
        try:
            row = _call_row(close, prices, journal_id, now)
            with cursor.connection.transaction():  # a savepoint: one bad row is not the batch's end
                is_new = cursor.execute(_CALL, row).rowcount == 1
        except (OverflowError, ValueError, psycopg.DataError, psycopg.IntegrityError):
            stored.refused.append(placed)
            continue
        if not is_new:
            stored.duplicates += 1
        elif close.status is RequestStatus.VOIDED:
            stored.voided += 1
        else:
            stored.settled += 1
    return stored


def store_scores(cursor: psycopg.Cursor[Any], records: Sequence[ShadowScoreRecord]) -> None:
    """Store the scores; one that no row can be made of is logged and left out."""
    for record in records:
        try:
            row = _score_row(record)
            with cursor.connection.transaction():
                cursor.execute(_SCORE, row)
        except (
            ArithmeticError,
            OverflowError,
            ValueError,
            psycopg.DataError,
            psycopg.IntegrityError,
        ):
            _LOG.warning("a shadow score of %r cannot be stored; left out", record.request_id)


def _call_row(
    close: CloseRecord, prices: dict[str, OrganizationPrices], journal_id: str, now: datetime
) -> tuple[Any, ...]:
    identity, link = close.identity, close.identity.shadow
    if link is None:
        raise ValueError("no shadow call")
    started_at = from_epoch_us(identity.started_at_us)
    charge = charge_request(close, prices.get(identity.organization_id), started_at)
    usage = charge.usage
    return _storable(
        (
            identity.request_id,
            link.request_id,
            link.kind,
            started_at,
            identity.organization_id,
            identity.project_id,
            link.requested_route_id,
            link.requested_route,
            identity.route_id,
            identity.route,
            identity.deployment_id,
            close.replica_id,
            close.status.value,
            close.http_status or None,
            close.attempts,
            close.error_code,
            usage.input_tokens,
            usage.cached_input_tokens,
            usage.output_tokens,
            usage.reasoning_tokens,
            None if charge.price is None else charge.price.id,
            charge.currency,
            charge.charge,
            None if charge.reason is None else charge.reason.value,
            from_epoch_us(close.finished_at_us) if close.finished_at_us else None,
            journal_id,
            now,
        )
    )


def _score_row(record: ShadowScoreRecord) -> tuple[Any, ...]:
    lower, upper = record.lower_charge, record.upper_charge
    return _storable(
        (
            record.project_id,
            record.request_id,
            record.organization_id,
            record.requested_route_id,
            record.requested_route,
            record.served_tier,
            record.lower_tier,
            record.upper_tier,
            record.method,
            record.lower_quality,
            record.upper_quality,
            record.tier_score,
            None if lower is None else Decimal(lower),
            None if upper is None else Decimal(upper),
            record.currency,
            from_epoch_us(record.at_us),
        )
    )


def _storable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the row. Raises :class:`ValueError` for a text that PostgreSQL has no room for."""
    if any(isinstance(value, str) and "\0" in value for value in row):
        raise ValueError("a text with a zero byte")
    return row
