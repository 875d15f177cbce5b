"""Where a serverless price and a dedicated price cross. Pure.

    tokens a day at the crossing = dedicated cost a day ÷ serverless price a token

An H100 at 3 dollars an hour is 72 dollars a day; at 1 dollar per million tokens that is 72 million
tokens a day, 3 million an hour, 833 a second, every second of the day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from billing.costing.hourly_profile import HOURS_PER_DAY
from billing.costing.wide_decimal import divide, wide

_SECONDS_PER_DAY = 86_400
_MILLION = 10**6
Cheaper = Literal["serverless", "dedicated", "same"]


@dataclass(frozen=True, slots=True)
class Crossing:
    """The load at which a dedicated fleet costs what the serverless price asks."""

    cost_per_day: Decimal
    tokens_per_day: Decimal
    tokens_per_hour: Decimal
    tokens_per_second: Decimal  # sustained, day and night


@dataclass(frozen=True, slots=True)
class FleetCrossing:
    """The crossing of a fleet, beside what the fleet can do. Utilization is of full capacity."""

    replicas: int  # spares left out
    spare_replicas: int  # in the cost, not in the capacity
    crossing: Crossing
    capacity_tokens_per_second: Decimal  # of the mix, at full utilization
    break_even_utilization: Decimal
    utilization_today: Decimal
    is_reachable: bool  # the crossing lies below the highest utilization that is allowed


@dataclass(frozen=True, slots=True)
class UtilizationRow:
    """A fleet held at one utilization all day; spares are in its cost, not in its capacity."""

    utilization: Decimal
    tokens_per_day: Decimal
    serverless_per_day: Decimal
    dedicated_per_day: Decimal
    dedicated_per_million: Decimal | None  # None at utilization 0
    cheaper: Cheaper


@wide
def find_crossing(*, cost_per_day: Decimal, price_per_million: Decimal) -> Crossing | None:
    """Return the crossing; None where tokens are free elsewhere, so that nothing crosses."""
    if not price_per_million:
        return None
    tokens = divide(cost_per_day * _MILLION, price_per_million)
    return Crossing(
        cost_per_day=cost_per_day,
        tokens_per_day=tokens,
        tokens_per_hour=divide(tokens, HOURS_PER_DAY),
        tokens_per_second=divide(tokens, _SECONDS_PER_DAY),
    )


@wide
def find_fleet_crossing(
    *,
    replicas: int,
    spare_replicas: int = 0,
    cost_per_day: Decimal,
    price_per_million: Decimal,
    replica_tokens_per_second: Decimal,
    tokens_per_day: Decimal,
    max_utilization: Decimal,
) -> FleetCrossing | None:
    """Return the crossing of ``replicas`` that cost ``cost_per_day`` together, spares included."""
    crossing = find_crossing(cost_per_day=cost_per_day, price_per_million=price_per_million)
    if crossing is None:
        return None
    capacity = replicas * replica_tokens_per_second
    break_even = divide(crossing.tokens_per_second, capacity)
    return FleetCrossing(
        replicas=replicas,
        spare_replicas=spare_replicas,
        crossing=crossing,
        capacity_tokens_per_second=capacity,
        break_even_utilization=break_even,
        utilization_today=divide(tokens_per_day, capacity * _SECONDS_PER_DAY),
        is_reachable=break_even <= max_utilization,
    )


@wide
def list_utilizations(
    *,
    utilizations: Sequence[Decimal],
    cost_per_day: Decimal,
    price_per_million: Decimal,
    capacity_tokens_per_second: Decimal,
) -> list[UtilizationRow]:
    """Return what either costs at each utilization. It is cheaper to have dedicated GPUs exactly
    above the break-even utilization of :func:`find_fleet_crossing`."""
    rows = []
    for utilization in utilizations:
        tokens = utilization * capacity_tokens_per_second * _SECONDS_PER_DAY
        serverless = divide(tokens * price_per_million, _MILLION)
        cheaper: Cheaper = "serverless" if serverless < cost_per_day else "dedicated"
        if serverless == cost_per_day:
            cheaper = "same"
        rows.append(
            UtilizationRow(
                utilization=utilization,
                tokens_per_day=tokens,
                serverless_per_day=serverless,
                dedicated_per_day=cost_per_day,
                dedicated_per_million=divide(cost_per_day * _MILLION, tokens) if tokens else None,
                cheaper=cheaper,
            )
        )
    return rows
