"""Which price holds for which route, where a list names routes as a price book does. Pure.

A price that is named like a route of the record counts for that route alone; the others are
providers that could serve any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from billing.costing.demand import list_serverless_costs
from billing.costing.errors import CostingError
from billing.costing.hourly_profile import HourlyProfile, make_profile
from billing.costing.price_list import ListPrice, charge_at
from billing.costing.recorded_load import RecordedLoad
from billing.costing.wide_decimal import wide


def choose_prices(
    prices: Sequence[ListPrice], route: str | None, routes: Sequence[str]
) -> tuple[ListPrice, ...]:
    """Return the prices that may serve ``route``; ``routes`` are all that the record has.

    Raises :class:`CostingError` where each price is another route's.
    """
    own = tuple(price for price in prices if route is not None and _is_named(price, route))
    if own or not prices:
        return own
    free = tuple(price for price in prices if not any(_is_named(price, one) for one in routes))
    if not free:
        raise CostingError(f"there is no price for the route {route!r}")
    return free


def price_load(
    load: RecordedLoad, route: str | None, prices: Sequence[ListPrice]
) -> tuple[HourlyProfile, tuple[ListPrice, ...]]:
    """Return the profile of one route, or of all, and the prices to compare it at.

    Routes of prices of their own are charged at these and added up: no list is left then, and the
    hours carry their charges. Raises :class:`CostingError`.
    """
    routes = load.routes
    has_charges = not prices
    if route is not None:
        profile = load.profile(route, has_charges=has_charges)
        return profile, choose_prices(prices, route, routes)
    if not any(_is_named(price, one) for price in prices for one in routes):
        return load.profile(has_charges=has_charges), tuple(prices)
    charged = (
        _charge(load.profile(one, has_charges=False), choose_prices(prices, one, routes))
        for one in routes
    )
    return make_profile(hour for profile in charged for hour in profile.hours), ()


@wide
def _charge(profile: HourlyProfile, prices: Sequence[ListPrice]) -> HourlyProfile:
    """Return the profile charged at the cheapest price."""
    price = list_serverless_costs(profile, prices)[0].price
    if price is None:
        return profile
    return HourlyProfile(
        tuple(replace(hour, charge=charge_at(price, hour.tokens)) for hour in profile.hours)
    )


def _is_named(price: ListPrice, route: str) -> bool:
    return price.name == route or price.name.endswith(f"/{route}")
