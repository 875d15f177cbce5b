"""What a workload on paper costs: per request, per day and per month of 30 days. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from billing.costing.errors import CostingError
from billing.costing.price_list import ListPrice, charge_at
from billing.costing.token_counts import TokenCounts
from billing.costing.wide_decimal import wide

DAYS_PER_MONTH = 30


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests a day, and the mean tokens of one."""

    requests_per_day: int
    tokens: TokenCounts

    @property
    def tokens_per_day(self) -> TokenCounts:
        """All requests' tokens."""
        return self.tokens.times(self.requests_per_day)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The exact cost of a workload at one price."""

    price: ListPrice
    per_request: Decimal
    per_day: Decimal
    per_month: Decimal


@wide
def estimate_cost(workload: Workload, prices: Iterable[ListPrice]) -> list[Estimate]:
    """Return the cost at each price, cheapest first. Raises :class:`CostingError`."""
    if workload.requests_per_day < 0:
        raise CostingError("requests per day are at least 0")
    estimates = []
    for price in prices:
        per_request = charge_at(price, workload.tokens)
        per_day = per_request * workload.requests_per_day
        estimates.append(Estimate(price, per_request, per_day, per_day * DAYS_PER_MONTH))
    return sorted(estimates, key=lambda estimate: (estimate.per_day, estimate.price.name))
