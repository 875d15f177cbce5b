"""Week two out of week one, and how wrong it is."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from billing.costing.errors import CostingError
from billing.costing.forecast import (
    back_test,
    fit_week,
    hour_of_week,
    list_week,
    predict_p95,
    predict_week,
)
from billing.costing.hourly_profile import HourlyProfile
from tests.factories.loads import HOUR, MONDAY, generate_load, make_hours, make_price

PRICE = make_price("0.5", "1.5")


def test_hours_of_the_week_begin_on_monday() -> None:
    assert hour_of_week(MONDAY) == 0
    assert hour_of_week(MONDAY - HOUR) == 167


def test_a_load_that_repeats_itself_is_predicted_exactly() -> None:
    daily = [1000 * (1 + hour % 12) for hour in range(24)]
    profile = make_hours(daily * 14)
    found = back_test(profile, PRICE)
    assert found.cost_error is not None
    assert abs(found.cost_error) < Decimal("1e-20")
    assert found.p95_error == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_noisy_fortnight_is_predicted_within_a_tenth(seed: int) -> None:
    """Noise of 15 % on every hour: its 168 hours' mean, and what lies above 95 of 100 hours."""
    found = back_test(generate_load(weeks=2, seed=seed), PRICE)
    assert found.cost_error is not None
    assert found.p95_error is not None
    assert abs(found.cost_error) < Decimal("0.05")
    assert abs(found.p95_error) < Decimal("0.10")
    assert (found.fitted_hours, found.tested_hours) == (168, 168)


def test_shrinking_towards_like_days_beats_repeating_the_week() -> None:
    """Over several loads the p95 hour is nearer than that of last week's hours as they were."""
    fitted_error = repeated_error = Decimal(0)
    for seed in range(8):
        profile = generate_load(weeks=2, seed=seed, noise=0.4)
        shape_values = [hour.tokens.total for hour in profile.hours]
        first, second = shape_values[:168], shape_values[168:]
        hours_at = [hour.hour_at for hour in profile.hours[:168]]
        shape = fit_week(hours_at, first)
        for predicted, actual in zip(shape.means, second, strict=True):
            fitted_error += abs(predicted - actual)
        repeated_error += sum(abs(a - b) for a, b in zip(first, second, strict=True))
    assert fitted_error < Decimal("0.9") * repeated_error


def test_the_level_is_the_last_week_s() -> None:
    profile = make_hours([1000] * 168 + [3000] * 168)
    shape = fit_week(
        [hour.hour_at for hour in profile.hours], [hour.tokens.total for hour in profile.hours]
    )
    assert {round(mean, 9) for mean in shape.means} == {6000}
    week = list_week(shape, MONDAY + 336 * HOUR)
    assert len(week) == 168
    assert week[0][0] == MONDAY + 336 * HOUR


def test_the_p95_hour_keeps_the_noise() -> None:
    profile = generate_load(weeks=1, noise=0.4)
    values = [hour.tokens.total for hour in profile.hours]
    shape = fit_week([hour.hour_at for hour in profile.hours], values)
    means = sorted(shape.means)
    assert predict_p95(shape) > means[int(len(means) * 0.95)]


def test_growth_between_the_weeks_is_an_error_that_is_shown() -> None:
    first, second = generate_load(weeks=2).hours[:168], generate_load(weeks=2).hours[168:]
    grown = tuple(replace(hour, tokens=hour.tokens.times(2)) for hour in second)
    found = back_test(HourlyProfile(first + grown), PRICE)
    assert found.cost_error is not None
    assert Decimal("-0.55") < found.cost_error < Decimal("-0.45")


def test_what_a_forecast_needs() -> None:
    with pytest.raises(CostingError, match="needs a week of hours, there are 100"):
        predict_week(make_hours([1] * 100), PRICE)
    with pytest.raises(CostingError, match="needs 336 hours, there are 200"):
        back_test(make_hours([1] * 200), PRICE)
    with pytest.raises(CostingError, match="no charge"):
        predict_week(make_hours([1] * 168), None)
    free = back_test(make_hours([0] * 336), PRICE)
    assert (free.cost_error, free.p95_error) == (None, None)
