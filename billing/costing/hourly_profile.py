"""The load by hour: as it was recorded, without gaps. Pure.

An hour that nobody used is an hour of 0, not a missing one: dedicated GPUs cost in it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from billing.costing.errors import CostingError
from billing.costing.read_rows import Row, find_count, get_count, read_rows
from billing.costing.token_counts import NO_TOKENS, TokenCounts
from billing.costing.wide_decimal import divide, wide
from billing.money import NO_CURRENCY, InvalidAmountError, parse_amount

HOUR = timedelta(hours=1)
HOURS_PER_DAY = 24
_MOST_HOURS = 5 * 366 * HOURS_PER_DAY


@dataclass(frozen=True, slots=True)
class LoadHour:
    """What was asked in one hour; ``charge`` None where the record has none."""

    hour_at: datetime
    requests: int
    tokens: TokenCounts
    charge: Decimal | None


@dataclass(frozen=True, slots=True)
class HourlyProfile:
    """Hours in order, one after the other, in UTC."""

    hours: tuple[LoadHour, ...]

    @property
    def tokens(self) -> TokenCounts:
        """The sums."""
        total = NO_TOKENS
        for hour in self.hours:
            total = total.plus(hour.tokens)
        return total

    @property
    def requests(self) -> int:
        """The sum."""
        return sum(hour.requests for hour in self.hours)

    @property
    @wide
    def charge(self) -> Decimal | None:
        """The sum; None where an hour with tokens has none."""
        charges = [hour.charge for hour in self.hours if hour.tokens.total or hour.charge]
        known = [charge for charge in charges if charge is not None]
        return sum(known, Decimal(0)) if len(known) == len(charges) else None

    @wide
    def per_day(self, amount: Decimal) -> Decimal:
        """Return what a sum over the profile is a day."""
        return divide(amount * HOURS_PER_DAY, len(self.hours))


def make_profile(hours: Iterable[LoadHour]) -> HourlyProfile:
    """Return the profile, with hours of 0 where the record has none.

    Rows of the same hour are added up. Raises :class:`CostingError` for times without a zone or
    inside an hour, and for none at all.
    """
    found: dict[datetime, LoadHour] = {}
    for hour in hours:
        if hour.hour_at.tzinfo is None:
            raise CostingError(f"the hour {hour.hour_at.isoformat()} has no zone")
        at = hour.hour_at.astimezone(UTC)
        if at.minute or at.second or at.microsecond:
            raise CostingError(f"{hour.hour_at.isoformat()} is not the beginning of an hour of UTC")
        found[at] = _add(found.get(at), hour, at)
    if not found:
        raise CostingError("the profile has no hours")
    first, last = min(found), max(found)
    count = (last - first) // HOUR + 1
    if count > _MOST_HOURS:
        raise CostingError("the profile is longer than five years")
    every = (first + number * HOUR for number in range(count))
    return HourlyProfile(tuple(found.get(at) or LoadHour(at, 0, NO_TOKENS, None) for at in every))


def _add(known: LoadHour | None, hour: LoadHour, at: datetime) -> LoadHour:
    if known is None:
        return LoadHour(at, hour.requests, hour.tokens, hour.charge)
    charge = known.charge
    charge = None if charge is None or hour.charge is None else charge + hour.charge
    return LoadHour(at, known.requests + hour.requests, known.tokens.plus(hour.tokens), charge)


def read_profile(text: str, *, route: str | None = None) -> HourlyProfile:
    """Return the profile in a CSV or JSON file; of one route only, if one is named.

    A row has ``hour`` (ISO 8601), ``input_tokens``, ``output_tokens``, and perhaps
    ``cached_input_tokens``, ``requests``, ``charge``, ``currency`` and ``route``. What
    ``forebay usage --by hour --json`` prints is such a file. Raises :class:`CostingError`.
    """
    rows = read_rows(text)
    if route is not None:
        rows = [row for row in rows if row.get("route") == route]
        if not rows:
            raise CostingError(f"the profile has no hours of the route {route!r}")
    currencies = {row["currency"] for row in rows if row.get("currency") and row.get("charge")}
    currencies.discard(NO_CURRENCY)
    if len(currencies) > 1:
        raise CostingError(f"charges in {' and '.join(sorted(currencies))} cannot be added")
    return make_profile(map(_read_hour, rows))


def list_routes(text: str) -> list[str]:
    """Return the routes that the file names, in order of their names."""
    return sorted({row["route"] for row in read_rows(text) if row.get("route")})


def find_currency(text: str) -> str | None:
    """Return the currency of the file's charges, None where no row names one."""
    named = {row["currency"] for row in read_rows(text) if row.get("currency")}
    return min(named - {NO_CURRENCY}, default=None)


def _read_hour(row: Row) -> LoadHour:
    text = row.get("hour") or row.get("hour_at") or row.get("group") or row.get("label") or ""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise CostingError(f"{text!r:.40} is no hour; write it like 2030-01-31T12:00Z") from None
    try:
        # Without a price book there is no currency, and the charge of 0 says nothing.
        has_charge = bool(row.get("charge")) and row.get("currency") != NO_CURRENCY
        charge = parse_amount(row["charge"]) if has_charge else None
    except InvalidAmountError as error:
        raise CostingError(f"the charge of {text}: {error}") from error
    tokens = TokenCounts.of(
        input=get_count(row, "input_tokens", "input"),
        output=get_count(row, "output_tokens", "output"),
        cached_input=find_count(row, "cached_input_tokens", "cached_input") or 0,
    )
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return LoadHour(at, find_count(row, "requests") or 0, tokens, charge)


def list_days(profile: HourlyProfile) -> list[Sequence[int]]:
    """Return the indices of the hours of each day of UTC that the profile has whole."""
    days: dict[object, list[int]] = {}
    for index, hour in enumerate(profile.hours):
        days.setdefault(hour.hour_at.date(), []).append(index)
    return [indices for indices in days.values() if len(indices) == HOURS_PER_DAY]
