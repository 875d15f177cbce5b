"""A record of what was asked, hour by hour and route by route: of a file or of the ledger. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal

from billing.costing.errors import CostingError
from billing.costing.hourly_profile import HourlyProfile, LoadHour, make_profile
from billing.costing.read_rows import Row, find_count, get_count, read_json, read_rows
from billing.costing.token_counts import TokenCounts
from billing.costing.wide_decimal import wide
from billing.money import NO_CURRENCY, InvalidAmountError, parse_charge


@dataclass(frozen=True, slots=True)
class LoadRow:
    """One hour of one route in one currency; ``route`` and ``currency`` None: not told."""

    route: str | None
    currency: str | None
    hour: LoadHour
    unpriced_requests: int = 0  # of the hour's: nothing of them is in its charge


@dataclass(frozen=True, slots=True)
class RecordedLoad:
    """Rows in any order. The record covers ``first_hour_at`` to ``last_hour_at``, both included,
    also where nobody asked for anything; None: as its rows do."""

    rows: tuple[LoadRow, ...]
    first_hour_at: datetime | None = None
    last_hour_at: datetime | None = None

    @property
    def routes(self) -> list[str]:
        """The routes that are named, in order of their names."""
        return sorted({row.route for row in self.rows if row.route})

    def find_currency(self, route: str | None = None) -> str | None:
        """Return the one currency that one route, or all, were charged in; None: none, or several.

        A currency in which nothing was charged counts only where nothing was charged in any.
        """
        rows = [row for row in self.rows if row.currency and route in (None, row.route)]
        found = {row.currency for row in rows if row.hour.charge} or {row.currency for row in rows}
        return found.pop() if len(found) == 1 else None

    def profile(self, route: str | None = None, *, has_charges: bool = True) -> HourlyProfile:
        """Return the hours of one route, or of all; a route's span is the whole record's.

        So what a route's hours cost a month is its part of what all cost, and an hour's use is not
        taken for a month of such hours. Without ``has_charges`` what was charged is left out, and
        may be in several currencies. Raises :class:`CostingError`.
        """
        rows = self._rows_of(route)
        hours = [row.hour for row in rows]
        if has_charges:
            currencies = {row.currency for row in rows if row.currency and row.hour.charge}
            if len(currencies) > 1:
                told = f"charges in {' and '.join(sorted(currencies))} cannot be added"
                raise CostingError(f"{told}: choose a route, or give a serverless price")
        else:
            hours = [replace(hour, charge=None) for hour in hours]
        first, last = self.span
        return make_profile(hours, first_at=first, last_at=last)

    @wide
    def grown(self, factor: Decimal) -> RecordedLoad:
        """Return ``factor`` times the load, hour by hour. Raises :class:`CostingError`."""
        if factor <= 0:
            raise CostingError("the growth is a factor above 0")
        if factor == 1:
            return self
        rows = tuple(replace(row, hour=_grow(row.hour, factor)) for row in self.rows)
        return replace(self, rows=rows)

    def by_route(self) -> list[tuple[str | None, RecordedLoad]]:
        """Return each route's rows over the whole record's span; None: rows that name no route."""
        first, last = self.span
        found: dict[str | None, list[LoadRow]] = {}
        for row in self.rows:
            found.setdefault(row.route or None, []).append(row)
        return [(route, RecordedLoad(tuple(rows), first, last)) for route, rows in found.items()]

    def _rows_of(self, route: str | None) -> Sequence[LoadRow]:
        if route is None:
            return self.rows
        rows = [row for row in self.rows if row.route == route]
        if not rows:
            raise CostingError(f"the profile has no hours of the route {route!r}")
        return rows

    @property
    def span(self) -> tuple[datetime | None, datetime | None]:
        """The first and the last hour that the record covers; None for a record of nothing."""
        times = [row.hour.hour_at for row in self.rows if row.hour.hour_at.tzinfo]
        told = [at for at in (self.first_hour_at, self.last_hour_at) if at is not None]
        return min([*times, *told], default=None), max([*times, *told], default=None)


def read_load(text: str) -> RecordedLoad:
    """Return the record in a CSV or JSON file.

    A row has ``hour`` (ISO 8601), ``input_tokens``, ``output_tokens``, and perhaps
    ``cached_input_tokens``, ``requests``, ``unpriced_requests``, ``charge``, ``currency`` and
    ``route``. What ``forebay usage --by hour --json`` prints is such a file, and what the control
    API tells of its own hours, which has ``first_hour_at`` and ``last_hour_at`` beside them. Raises
    :class:`CostingError`, also for a row of a whole day: its load is not that of its first hour.
    """
    rows = tuple(map(_read_row, read_rows(text)))
    first, last = _read_span(text)
    return RecordedLoad(rows, first, last)


def _read_span(text: str) -> tuple[datetime | None, datetime | None]:
    if not text.lstrip("\ufeff \t\r\n").startswith("{"):
        return None, None
    content = read_json(text.lstrip("\ufeff"))
    told = [content.get(name) for name in ("first_hour_at", "last_hour_at")]
    if None in told:
        return None, None
    first, last = (_read_time(str(one)) for one in told)
    return first, last


def _read_row(row: Row) -> LoadRow:
    text = row.get("hour") or row.get("hour_at") or row.get("group") or row.get("label") or ""
    at = _read_time(text)
    if _is_day(text):
        raise CostingError(
            f"{text!r} is a day, not an hour: a profile has a row for each hour, as "
            "'forebay usage --by hour' tells them"
        )
    named = row.get("currency") or None
    # Without a price book there is no currency, and the charge of 0 says nothing.
    has_charge = bool(row.get("charge")) and named != NO_CURRENCY
    try:
        charge = parse_charge(row["charge"]) if has_charge else None
    except InvalidAmountError as error:
        raise CostingError(f"the charge of {text}: {error}") from error
    tokens = TokenCounts.of(
        input=get_count(row, "input_tokens", "input"),
        output=get_count(row, "output_tokens", "output"),
        cached_input=find_count(row, "cached_input_tokens", "cached_input") or 0,
    )
    hour = LoadHour(at, find_count(row, "requests") or 0, tokens, charge)
    return LoadRow(
        row.get("route") or None,
        None if named == NO_CURRENCY else named,
        hour,
        find_count(row, "unpriced_requests") or 0,
    )


def _read_time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise CostingError(f"{text!r:.40} is no hour; write it like 2030-01-31T12:00Z") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _grow(hour: LoadHour, factor: Decimal) -> LoadHour:
    return LoadHour(
        hour.hour_at,
        int((hour.requests * factor).to_integral_value()),
        hour.tokens.times(factor),
        None if hour.charge is None else hour.charge * factor,
    )
