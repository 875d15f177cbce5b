"""Turns a recorded profile into work and money by hour. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from billing.costing.dedicated import HourDemand
from billing.costing.errors import CostingError
from billing.costing.hourly_profile import HourlyProfile
from billing.costing.price_list import ListPrice, charge_at
from billing.costing.replica_capacity import ReplicaCapacity
from billing.costing.wide_decimal import wide

# A replica must be there for whatever came, even if it took it no time worth counting.
_LEAST_BUSY = Decimal("0.001")


@dataclass(frozen=True, slots=True)
class ServerlessCost:
    """What the whole profile costs at one price; ``price`` None: what was charged."""

    name: str
    price: ListPrice | None
    total: Decimal


@wide
def list_serverless_costs(
    profile: HourlyProfile, prices: Sequence[ListPrice]
) -> list[ServerlessCost]:
    """Return the cost at each price, cheapest first; what was charged where there is no price.

    Raises :class:`CostingError` where there is neither.
    """
    if not prices:
        charged = profile.charge
        if charged is None:
            raise CostingError("hours of the profile have no charge: give a serverless price")
        return [ServerlessCost("charged", None, charged)]
    tokens = profile.tokens
    costs = [ServerlessCost(price.name, price, charge_at(price, tokens)) for price in prices]
    return sorted(costs, key=lambda cost: (cost.total, cost.name))


@wide
def make_demand(
    profile: HourlyProfile, price: ListPrice | None, capacity: ReplicaCapacity
) -> list[HourDemand]:
    """Return each hour's work and its serverless cost; ``price`` None: what was charged."""
    demand = []
    for hour in profile.hours:
        cost = hour.charge or Decimal(0) if price is None else charge_at(price, hour.tokens)
        busy = capacity.busy_seconds(hour.tokens)
        if cost or hour.tokens.total:
            busy = max(busy, _LEAST_BUSY)
        demand.append(HourDemand(hour.hour_at, busy, cost))
    return demand


@wide
def grow(demand: Sequence[HourDemand], factor: Decimal) -> list[HourDemand]:
    """Return the demand of ``factor`` times the load."""
    return [
        HourDemand(hour.hour_at, hour.busy_seconds * factor, hour.serverless * factor)
        for hour in demand
    ]
