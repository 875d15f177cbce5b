"""What the next weeks' load looks like, from the recorded ones, and how wrong that would have been.

The forecast is a shape and a level. The shape is an hour-of-week profile: each of the 168 hours is
its own mean, drawn towards the mean of the same hour on weekdays or on weekends as long as there are
few weeks of it. The level is the last week's. Around it lies what was left over in the fit, hour by
hour, as factors: that is where the 95th percentile of an hour comes from. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from billing.costing.distribution import get_percentile
from billing.costing.errors import CostingError
from billing.costing.hourly_profile import HOUR, HourlyProfile
from billing.costing.price_list import ListPrice, charge_at
from billing.costing.wide_decimal import divide, wide

HOURS_PER_WEEK = 7 * 24
_SATURDAY = 5
_P95 = Decimal("0.95")


@dataclass(frozen=True, slots=True)
class WeekShape:
    """One series by hour of the week (hour 0 begins on Monday at 0:00 UTC), and what it missed."""

    means: tuple[Decimal, ...]  # of each of the 168 hours
    leftovers: tuple[Decimal, ...]  # recorded ÷ fitted, in rising order

    def at(self, hour_at: datetime) -> Decimal:
        """Return the expected value of an hour."""
        return self.means[hour_of_week(hour_at)]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one later week is expected to cost, and the hour that 95 of 100 stay below."""

    cost: Decimal
    p95_hour_tokens: Decimal


@dataclass(frozen=True, slots=True)
class BackTest:
    """A prediction beside what came. Errors are relative: 0.1 is a tenth too much."""

    predicted: Prediction
    actual: Prediction
    cost_error: Decimal | None  # None where what came is 0
    p95_error: Decimal | None
    fitted_hours: int
    tested_hours: int


def hour_of_week(hour_at: datetime) -> int:
    """Return 0 for Monday 0:00 up to 167 for Sunday 23:00, in the time's own zone."""
    return hour_at.weekday() * 24 + hour_at.hour


@wide
def fit_week(hours_at: Sequence[datetime], values: Sequence[Decimal]) -> WeekShape:
    """Return the shape of a series of at least a week, without gaps.

    Raises :class:`CostingError` for less than a week.
    """
    if len(values) < HOURS_PER_WEEK:
        raise CostingError(f"a forecast needs a week of hours, there are {len(values)}")
    level = divide(_sum(values[-HOURS_PER_WEEK:]), _sum_of_means(hours_at, values) or 1)
    means = tuple(mean * level for mean in _means(hours_at, values))
    fitted = [means[hour_of_week(at)] for at in hours_at]
    leftovers = [divide(value, mean) for value, mean in zip(values, fitted, strict=True) if mean]
    return WeekShape(means, tuple(sorted(leftovers)) or (Decimal(1),))


def _means(hours_at: Sequence[datetime], values: Sequence[Decimal]) -> list[Decimal]:
    """Return each hour of the week's mean, drawn towards the hour's mean over like days.

    With w weeks the hour's own mean weighs w / (w + 1): one week is one observation an hour.
    """
    own: list[list[Decimal]] = [[] for _ in range(HOURS_PER_WEEK)]
    like: dict[tuple[bool, int], list[Decimal]] = {}
    for at, value in zip(hours_at, values, strict=True):
        own[hour_of_week(at)].append(value)
        like.setdefault((at.weekday() >= _SATURDAY, at.hour), []).append(value)
    means = []
    for hour, found in enumerate(own):
        weight = divide(len(found), len(found) + 1)
        alike = like[hour // 24 >= _SATURDAY, hour % 24]
        means.append(weight * _mean(found) + (1 - weight) * _mean(alike))
    return means


def _sum_of_means(hours_at: Sequence[datetime], values: Sequence[Decimal]) -> Decimal:
    return _sum(_means(hours_at, values))


@wide
def predict_p95(shape: WeekShape) -> Decimal:
    """Return the value that 95 of 100 hours of a later week stay at or below: every hour's mean
    with every leftover factor, each as likely."""
    spread = sorted(mean * factor for mean in shape.means for factor in shape.leftovers)
    return get_percentile(spread, _P95)


@wide
def predict_week(profile: HourlyProfile, price: ListPrice | None) -> Prediction:
    """Return the week after ``profile``; ``price`` None: as it was charged.

    Raises :class:`CostingError` for less than a week, or hours without a charge or a price.
    """
    hours_at = [hour.hour_at for hour in profile.hours]
    tokens = fit_week(hours_at, [hour.tokens.total for hour in profile.hours])
    cost = fit_week(hours_at, _costs(profile, price))
    return Prediction(cost=_sum(cost.means), p95_hour_tokens=predict_p95(tokens))


@wide
def back_test(profile: HourlyProfile, price: ListPrice | None, *, fit_weeks: int = 1) -> BackTest:
    """Fit on the first weeks, predict the one after them, and tell the error.

    Raises :class:`CostingError` where the profile is not a week longer than what is fitted.
    """
    fitted_hours = fit_weeks * HOURS_PER_WEEK
    if fit_weeks < 1 or len(profile.hours) < fitted_hours + HOURS_PER_WEEK:
        raise CostingError(
            f"a back-test on {fit_weeks} week(s) needs {fitted_hours + HOURS_PER_WEEK} hours, "
            f"there are {len(profile.hours)}"
        )
    fitted = HourlyProfile(profile.hours[:fitted_hours])
    tested = HourlyProfile(profile.hours[fitted_hours : fitted_hours + HOURS_PER_WEEK])
    predicted = predict_week(fitted, price)
    actual = Prediction(
        cost=_sum(_costs(tested, price)),
        p95_hour_tokens=get_percentile(sorted(hour.tokens.total for hour in tested.hours), _P95),
    )
    return BackTest(
        predicted=predicted,
        actual=actual,
        cost_error=_error(predicted.cost, actual.cost),
        p95_error=_error(predicted.p95_hour_tokens, actual.p95_hour_tokens),
        fitted_hours=fitted_hours,
        tested_hours=len(tested.hours),
    )


def list_week(shape: WeekShape, first_at: datetime) -> list[tuple[datetime, Decimal]]:
    """Return the expected value of each hour of the week that begins at ``first_at``."""
    hours_at = [first_at + number * HOUR for number in range(HOURS_PER_WEEK)]
    return [(at, shape.at(at)) for at in hours_at]


def _costs(profile: HourlyProfile, price: ListPrice | None) -> list[Decimal]:
    if price is not None:
        return [charge_at(price, hour.tokens) for hour in profile.hours]
    if profile.charge is None:
        raise CostingError("hours of the profile have no charge: give a price")
    return [hour.charge or Decimal(0) for hour in profile.hours]


def _error(predicted: Decimal, actual: Decimal) -> Decimal | None:
    return divide(predicted - actual, actual) if actual else None


def _sum(values: Sequence[Decimal]) -> Decimal:
    return sum(values, Decimal(0))


def _mean(values: Sequence[Decimal]) -> Decimal:
    return divide(_sum(values), len(values)) if values else Decimal(0)
