"""The load by hour: as it was recorded, without gaps. Pure.

An hour that nobody used is an hour of 0, not a missing one: dedicated GPUs cost in it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from billing.costing.errors import CostingError
from billing.costing.token_counts import NO_TOKENS, TokenCounts
from billing.costing.wide_decimal import divide, wide

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


def make_profile(
    hours: Iterable[LoadHour],
    *,
    first_at: datetime | None = None,
    last_at: datetime | None = None,
) -> HourlyProfile:
    """Return the profile, with hours of 0 where the record has none: between its first and last
    hour, and out to ``first_at`` and ``last_at``, the beginnings of two hours.

    Rows of the same hour are added up. Raises :class:`CostingError` for times without a zone or
    inside an hour, and for none at all.
    """
    found: dict[datetime, LoadHour] = {}
    for hour in hours:
        at = _check_hour(hour.hour_at)
        found[at] = _add(found.get(at), hour, at)
    if not found:
        raise CostingError("the profile has no hours")
    told = [_check_hour(at) for at in (first_at, last_at) if at is not None]
    first, last = min([*found, *told]), max([*found, *told])
    count = (last - first) // HOUR + 1
    if count > _MOST_HOURS:
        raise CostingError("the profile is longer than five years")
    every = (first + number * HOUR for number in range(count))
    return HourlyProfile(tuple(found.get(at) or LoadHour(at, 0, NO_TOKENS, None) for at in every))


def _check_hour(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise CostingError(f"the hour {at.isoformat()} has no zone")
    try:
        moment = at.astimezone(UTC)
    except OverflowError:
        raise CostingError(f"{at.isoformat()} is in no year of UTC from 1 to 9999") from None
    if moment.minute or moment.second or moment.microsecond:
        raise CostingError(f"{at.isoformat()} is not the beginning of an hour of UTC")
    return moment


def _add(known: LoadHour | None, hour: LoadHour, at: datetime) -> LoadHour:
    if known is None:
        return LoadHour(at, hour.requests, hour.tokens, hour.charge)
    charge = known.charge
    charge = None if charge is None or hour.charge is None else charge + hour.charge
    return LoadHour(at, known.requests + hour.requests, known.tokens.plus(hour.tokens), charge)


def list_days(profile: HourlyProfile) -> list[Sequence[int]]:
    """Return the indices of the hours of each day of UTC that the profile has whole."""
    days: dict[object, list[int]] = {}
    for index, hour in enumerate(profile.hours):
        days.setdefault(hour.hour_at.date(), []).append(index)
    return [indices for indices in days.values() if len(indices) == HOURS_PER_DAY]
