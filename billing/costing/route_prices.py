"""Which price holds for which route, where a list names routes as a price book does. Pure.

A price of a route, or named like a route of the record, counts for that route alone; the others are
of providers that could serve any. A route without either has no price: another's is never taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from billing.costing.demand import list_serverless_costs
from billing.costing.errors import CostingError
from billing.costing.hourly_profile import HourlyProfile, make_profile
from billing.costing.price_list import ListPrice, charge_at
from billing.costing.recorded_load import RecordedLoad
from billing.costing.wide_decimal import wide


@dataclass(frozen=True, slots=True)
class PricedLoad:
    """Hours, and the prices to compare them at; none: the hours carry their charges."""

    profile: HourlyProfile
    prices: tuple[ListPrice, ...]
    notes: tuple[str, ...] = ()


def choose_prices(
    prices: Sequence[ListPrice], route: str | None, routes: Sequence[str]
) -> tuple[ListPrice, ...]:
    """Return the prices that may serve ``route``; ``routes`` are all that the record has.

    ``route`` None is what was asked without one. Raises :class:`CostingError` where each price is
    another route's.
    """
    owners = [_find_owner(price, routes) for price in prices]
    own = [price for price, owner in zip(prices, owners, strict=True) if owner == route]
    if route is not None and not own:
        own = [price for price, owner in zip(prices, owners, strict=True) if owner is None]
    if prices and not own:
        named = "hours that name no route" if route is None else f"the route {route!r}"
        raise CostingError(f"there is no price for {named}")
    return tuple(own)


def price_load(load: RecordedLoad, route: str | None, prices: Sequence[ListPrice]) -> PricedLoad:
    """Return the profile of one route, or of all, and the prices to compare it at.

    Routes of prices of their own are charged at these and added up: no list is left then, and the
    hours carry their charges. Raises :class:`CostingError`.
    """
    routes = load.routes
    has_charges = not prices
    if has_charges:
        _check_charged(load, route)
    if route is not None:
        profile = load.profile(route, has_charges=has_charges)
        return PricedLoad(profile, choose_prices(prices, route, routes))
    owners = [_find_owner(price, routes) for price in prices]
    if not any(owners):
        return PricedLoad(load.profile(has_charges=has_charges), tuple(prices))
    if not routes:
        note = (
            "the hours name no route: they are compared at every price, though some are of "
            "single routes"
        )
        return PricedLoad(load.profile(has_charges=False), tuple(prices), (note,))
    charged = (
        _charge(part.profile(has_charges=False), choose_prices(prices, one, routes))
        for one, part in load.by_route()
    )
    return PricedLoad(make_profile(hour for profile in charged for hour in profile.hours), ())


def _check_charged(load: RecordedLoad, route: str | None) -> None:
    """Do nothing if what was charged is a price. Raises :class:`CostingError` where nothing was, and
    there are requests that no price was found for: they are not free."""
    rows = [row for row in load.rows if route in (None, row.route)]
    unpriced = sum(row.unpriced_requests for row in rows)
    if unpriced and not any(row.hour.charge for row in rows):
        raise CostingError(
            f"nothing was charged, and there is no price for {unpriced} of the requests: give a "
            "serverless price"
        )


@wide
def _charge(profile: HourlyProfile, prices: Sequence[ListPrice]) -> HourlyProfile:
    """Return the profile charged at the cheapest price."""
    price = list_serverless_costs(profile, prices)[0].price
    if price is None:
        return profile
    return HourlyProfile(
        tuple(replace(hour, charge=charge_at(price, hour.tokens)) for hour in profile.hours)
    )


def _find_owner(price: ListPrice, routes: Sequence[str]) -> str | None:
    """Return the route that the price is of, None for a provider's."""
    if price.route is not None:
        return price.route
    # Of "llama" and "meta/llama" the price "meta/llama" is the longer one's.
    named = [one for one in routes if price.name == one or price.name.endswith(f"/{one}")]
    return max(named, key=len, default=None)
