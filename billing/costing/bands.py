"""How sure a monthly figure is: days are drawn again and again from the recorded ones. Pure.

A day is drawn whole, so what its hours have in common stays together. The hours of a first or last
day that is not whole are in every month as they are, so that the bands are of the same hours as the
figures. Few days, or days that are alike by accident, make a band too narrow; it says nothing of
growth.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from billing.costing.distribution import get_percentile
from billing.costing.wide_decimal import divide, wide

DEFAULT_RESAMPLES = 1000
LEAST_DAYS = 3
_HOURS_PER_MONTH = 30 * 24
_LOW, _HIGH = Decimal("0.025"), Decimal("0.975")


@dataclass(frozen=True, slots=True)
class Band:
    """The middle 95 of 100 resamples."""

    low: Decimal
    high: Decimal


@dataclass(frozen=True, slots=True)
class Bands:
    """Of monthly costs, by name, and of what ``best`` saves against ``against``."""

    days: int
    resamples: int
    costs: Mapping[str, Band]
    saving: Band
    best_share: Decimal  # of the resamples: those in which ``best`` was the cheapest


@wide
def find_bands(
    costs: Mapping[str, Sequence[Decimal]],
    days: Sequence[Sequence[int]],
    *,
    best: str,
    against: str,
    seed: int,
    resamples: int = DEFAULT_RESAMPLES,
) -> Bands | None:
    """Return the bands of costs by hour; ``days`` are the hours' indices of each whole day, and
    what is in none of them is taken as it is.

    None with fewer than :data:`LEAST_DAYS` days.
    """
    if len(days) < LEAST_DAYS or resamples < 1:
        return None
    by_day = {
        name: [sum((hourly[index] for index in day), Decimal(0)) for day in days]
        for name, hourly in costs.items()
    }
    drawn_hours = {index for day in days for index in day}
    fixed = {
        name: sum(
            (cost for index, cost in enumerate(hourly) if index not in drawn_hours), Decimal(0)
        )
        for name, hourly in costs.items()
    }
    hours = len(costs[best])
    chance = random.Random(seed)  # noqa: S311 - a repeatable sample, no secret
    drawn: dict[str, list[Decimal]] = {name: [] for name in by_day}
    savings: list[Decimal] = []
    wins = 0
    for _ in range(resamples):
        picks = [chance.randrange(len(days)) for _ in days]
        months = {
            name: divide(
                sum((daily[pick] for pick in picks), fixed[name]) * _HOURS_PER_MONTH, hours
            )
            for name, daily in by_day.items()
        }
        for name, month in months.items():
            drawn[name].append(month)
        savings.append(months[against] - months[best])
        wins += months[best] == min(months.values())
    return Bands(
        days=len(days),
        resamples=resamples,
        costs={name: _band(values) for name, values in drawn.items()},
        saving=_band(savings),
        best_share=divide(wins, resamples),
    )


def _band(values: Sequence[Decimal]) -> Band:
    ordered = sorted(values)
    return Band(get_percentile(ordered, _LOW), get_percentile(ordered, _HIGH))
