"""Which price holds at a moment: effective-dated choice. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class PriceTerms:
    """One dated price of a route; amounts per million tokens.

    ``cached_input_per_million`` None: cached input costs what input costs. 0: it is free.
    """

    id: str
    currency: str
    effective_at: datetime
    input_per_million: Decimal
    cached_input_per_million: Decimal | None
    output_per_million: Decimal


class PriceTimeline:
    """The dated prices of one route in one book."""

    __slots__ = ("_effective_at", "_prices")

    def __init__(self, prices: Iterable[PriceTerms]) -> None:
        self._prices = sorted(prices, key=lambda price: price.effective_at)
        self._effective_at = [price.effective_at for price in self._prices]

    def find_at(self, at: datetime) -> PriceTerms | None:
        """Return the price that holds at ``at``: the latest not after it. None before the first."""
        index = bisect_right(self._effective_at, at)
        return self._prices[index - 1] if index else None


@dataclass(frozen=True, slots=True)
class OrganizationPrices:
    """What a batch must know of one organization: its book's currency and its routes' prices."""

    currency: str
    timelines: dict[str, PriceTimeline]  # by route id

    def find_price(self, route_id: str, at: datetime) -> PriceTerms | None:
        """Return the route's price at ``at``, None where it has none."""
        timeline = self.timelines.get(route_id)
        return None if timeline is None else timeline.find_at(at)
