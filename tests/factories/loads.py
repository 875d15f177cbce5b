"""Hourly loads to compare and forecast: recorded ones in small, and a generated fortnight."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from billing.costing.hourly_profile import HourlyProfile, LoadHour, make_profile
from billing.costing.price_list import ListPrice
from billing.costing.token_counts import TokenCounts

MONDAY = datetime(2026, 11, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)


def make_price(
    input_: str = "1", output: str = "1", *, cached: str | None = None, name: str = "acme"
) -> ListPrice:
    return ListPrice(
        name=name,
        currency="USD",
        input_per_million=Decimal(input_),
        cached_input_per_million=None if cached is None else Decimal(cached),
        output_per_million=Decimal(output),
    )


def make_hours(
    outputs: Iterable[int], *, input_times: int = 1, first_at: datetime = MONDAY
) -> HourlyProfile:
    """Return hours with these output tokens, and ``input_times`` as much input."""
    return make_profile(
        LoadHour(
            first_at + number * HOUR,
            requests=output // 100,
            tokens=TokenCounts.of(input=output * input_times, output=output),
            charge=None,
        )
        for number, output in enumerate(outputs)
    )


def generate_load(*, weeks: int, seed: int = 7, noise: float = 0.15) -> HourlyProfile:
    """Return a load with a day's and a week's rhythm, and lognormal noise on every hour.

    By day it swings between a tenth and almost twice its mean, at weekends at half of that.
    """
    chance = random.Random(seed)
    outputs = []
    for number in range(weeks * 7 * 24):
        at = MONDAY + number * HOUR
        level = 1 + 0.9 * math.sin((at.hour - 8) / 24 * 2 * math.pi)
        level *= 0.5 if at.weekday() >= 5 else 1.0
        outputs.append(int(1_000_000 * level * chance.lognormvariate(0, noise)))
    return make_hours(outputs, input_times=2)
