"""Rates the events that had no price, once a price that fits their time has been set.

Each event is rated once: its dead letter's row is the lock, and rating, sums and resolution are one
transaction. What still has no price stays as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import class_row

from billing.budgets.spend import add_deltas_to_budgets
from billing.charging.charge_rule import (
    ChargeRule,
    MissingPriceError,
    make_rule,
    rate_by_rule,
)
from billing.charging.event_row import EVENT_COLUMNS
from billing.charging.reason import DeadLetterReason
from billing.clock import Clock, utc_now
from billing.db import connect
from billing.ledger.project_hours import add_deltas_to_project_hours
from billing.pricing.load_prices import load_prices
from billing.pricing.price_book import PriceTerms
from billing.pricing.rate import RatedUsage
from billing.retry import retry_conflicts
from billing.usage.event import TokenUsage
from billing.usage.repository import prepare_session
from billing.usage.rollup import add_deltas_to_rollups

_BATCH = 500

_TAKE = """
SELECT d.id AS letter_id, e.event_id, e.started_at,
    date_bin('15 minutes', e.started_at, timestamptz '1970-01-01 00:00:00+00') AS quarter,
    e.organization_id, e.project_id, e.api_key_id,
    e.route_id, e.route, e.deployment_id, e.currency, e.input_tokens, e.cached_input_tokens,
    e.output_tokens, e.reasoning_tokens, e.charge_mode, e.saving_share, e.requested_route_id,
    e.requested_route, e.counterfactual_route_id
FROM dead_letters d
JOIN usage_events e ON e.event_id = d.event_id AND e.started_at = d.event_started_at
WHERE d.reason = %s AND d.resolved_at IS NULL AND e.charge IS NULL AND d.id > %s
ORDER BY d.id
LIMIT %s
FOR UPDATE OF d
"""


@dataclass(frozen=True, slots=True)
class RetryOutcome:
    """How many dead letters were put right and how many still have no price."""

    rated: int
    still_unpriced: int


@dataclass(frozen=True, slots=True)
class _UnpricedEvent:
    letter_id: str
    event_id: str
    started_at: datetime
    quarter: datetime
    organization_id: str
    project_id: str
    api_key_id: str
    route_id: str
    route: str
    deployment_id: str
    currency: str
    input_tokens: int | None
    cached_input_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    charge_mode: str | None
    saving_share: Decimal | None
    requested_route_id: str | None
    requested_route: str | None
    counterfactual_route_id: str | None

    @property
    def rule(self) -> ChargeRule:
        if self.charge_mode is None:
            return ChargeRule(self.route_id, self.route)
        return make_rule(
            route_id=self.route_id,
            route=self.route,
            charge_mode=self.charge_mode,
            saving_share=self.saving_share,
            requested_route_id=self.requested_route_id or "",
            requested_route=self.requested_route or "",
            counterfactual_route_id=self.counterfactual_route_id or "",
        )

    @property
    def usage(self) -> TokenUsage:
        return TokenUsage(
            self.input_tokens,
            self.cached_input_tokens,
            self.output_tokens,
            self.reasoning_tokens,
        )

    def delta(self, sign: int, currency: str, charge: object, unpriced: int) -> tuple[Any, ...]:
        """Return a ``batch_deltas`` row that takes the event out of (-1) or into (1) a sum."""
        return (
            self.quarter,
            self.organization_id,
            self.project_id,
            self.api_key_id,
            self.route,
            self.deployment_id,
            currency,
            sign,
            sign * (self.input_tokens or 0),
            sign * (self.cached_input_tokens or 0),
            sign * (self.output_tokens or 0),
            sign * (self.reasoning_tokens or 0),
            charge,
            sign * unpriced,
            0,
        )


class _Rating(NamedTuple):
    event: _UnpricedEvent
    rated: RatedUsage
    counterfactual: PriceTerms | None


def retry_unpriced(database_url: str, *, clock: Clock = utc_now) -> RetryOutcome:
    """Rate every unpriced event that has a price by now; its charge is posted like any other.

    May run beside the worker and beside itself.
    """
    rated = waiting = 0
    last_id = ""
    with connect(
        database_url, application_name="forebay-retry-unpriced", autocommit=True
    ) as connection:
        prepare_session(connection, EVENT_COLUMNS)
        while True:
            events, done = retry_conflicts(partial(_retry_batch, connection, last_id, clock()))
            rated += done
            waiting += len(events) - done
            if len(events) < _BATCH:
                return RetryOutcome(rated=rated, still_unpriced=waiting)
            last_id = events[-1].letter_id


def _retry_batch(
    connection: psycopg.Connection[Any], after: str, now: datetime
) -> tuple[Sequence[_UnpricedEvent], int]:
    """Take the next letters after ``after``; return them and how many were put right."""
    with connection.transaction():
        with connection.cursor(row_factory=class_row(_UnpricedEvent)) as taking:
            taking.execute(_TAKE, (DeadLetterReason.NO_PRICE, after, _BATCH))
            events = taking.fetchall()
        with connection.cursor() as cursor:
            rules = [event.rule for event in events]
            prices = load_prices(
                cursor,
                {
                    (event.organization_id, route_id)
                    for event, rule in zip(events, rules, strict=True)
                    for route_id in rule.route_ids
                },
            )
            ratings: list[_Rating] = []
            for event, rule in zip(events, rules, strict=True):
                owner = prices.get(event.organization_id)
                if owner is None:
                    continue
                with contextlib.suppress(MissingPriceError):
                    ratings.append(
                        _Rating(event, *rate_by_rule(rule, event.usage, owner, event.started_at))
                    )
            if ratings:
                _store_ratings(cursor, ratings, now)
    return events, len(ratings)


def _store_ratings(
    cursor: psycopg.Cursor[Any],
    ratings: Sequence[_Rating],
    now: datetime,
) -> None:
    cursor.executemany(
        "UPDATE usage_events SET price_id = %s, currency = %s, charge = %s, input_charge = %s,"
        " cached_input_charge = %s, output_charge = %s, counterfactual_price_id = %s"
        " WHERE event_id = %s AND started_at = %s",
        [
            (
                rated.price.id,
                rated.price.currency,
                rated.charge,
                rated.input_charge,
                rated.cached_input_charge,
                rated.output_charge,
                None if counterfactual is None else counterfactual.id,
                event.event_id,
                event.started_at,
            )
            for event, rated, counterfactual in ratings
        ],
    )
    with cursor.copy("COPY batch_deltas FROM STDIN") as copy:
        for event, rated, _ in ratings:
            # The currency may differ from the one it was counted under: out there, in here.
            copy.write_row(event.delta(-1, event.currency, 0, 1))
            copy.write_row(event.delta(1, rated.price.currency, rated.charge, 0))
    add_deltas_to_rollups(cursor)
    add_deltas_to_project_hours(cursor)
    add_deltas_to_budgets(cursor)
    cursor.execute(
        "UPDATE dead_letters SET resolved_at = %s WHERE id = ANY(%s)",
        (now, [rating.event.letter_id for rating in ratings]),
    )
