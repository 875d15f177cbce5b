"""What becomes of the choice if a figure is other than assumed, one figure at a time. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal

from billing.costing.choices import Comparison, Kind, compare
from billing.costing.crossover import CrossoverQuestion
from billing.costing.dedicated import DedicatedTerms, HourDemand
from billing.costing.demand import grow, list_serverless_costs, make_demand
from billing.costing.errors import CostingError
from billing.costing.hourly_profile import HourlyProfile
from billing.costing.price_list import ListPrice
from billing.costing.replica_capacity import ReplicaCapacity
from billing.costing.token_counts import TokenCounts
from billing.costing.wide_decimal import divide, wide

_FACTORS = tuple(Decimal(text) for text in ("0.5", "0.75", "1.25", "1.5", "2"))
_GROWTH = tuple(Decimal(text) for text in ("0.5", "2", "5", "10"))
_MIX = tuple(Decimal(text) for text in ("0.5", "1.5"))


@dataclass(frozen=True, slots=True)
class SensitivityRow:
    """The choice with one figure changed. Costs are a month's; None: it cannot be had."""

    figure: str  # what was changed
    factor: Decimal  # to so much of what was assumed
    serverless: Decimal
    dedicated: Decimal | None
    hybrid: Decimal | None
    best: Kind
    replicas: int  # of the best


@wide
def find_sensitivity(question: CrossoverQuestion) -> list[SensitivityRow]:
    """Return a row for each changed figure; none where no capacity meets the latency target."""
    capacity = question.capacity
    if capacity is None:
        return []
    price = list_serverless_costs(question.profile, question.prices)[0].price
    rows = []
    for figure, factor, demand, terms in _list_cases(question, capacity, price):
        with suppress(CostingError):  # so many replicas that none can be meant
            rows.append(_make_row(figure, factor, compare(demand, terms)))
    return rows


def _list_cases(
    question: CrossoverQuestion, capacity: ReplicaCapacity, price: ListPrice | None
) -> Iterator[tuple[str, Decimal, list[HourDemand], DedicatedTerms]]:
    terms, profile = question.terms, question.profile
    demand = make_demand(profile, price, capacity)
    for factor in _FACTORS:
        yield "gpu price", factor, demand, _reprice(terms, factor)
    for factor in _FACTORS:
        yield "capacity", factor, make_demand(profile, price, capacity.times(factor)), terms
    for factor in _GROWTH:
        yield "load", factor, grow(demand, factor), terms
    if price is None:
        return  # what was charged says nothing of another mix
    for factor in _MIX:
        shifted = _shift_mix(profile, factor)
        yield "output share", factor, make_demand(shifted, price, capacity), terms


def _reprice(terms: DedicatedTerms, factor: Decimal) -> DedicatedTerms:
    committed = terms.committed_price_per_gpu_hour
    return replace(
        terms,
        price_per_gpu_hour=terms.price_per_gpu_hour * factor,
        committed_price_per_gpu_hour=None if committed is None else committed * factor,
    )


def _shift_mix(profile: HourlyProfile, factor: Decimal) -> HourlyProfile:
    """Return the same totals with ``factor`` times the output, input taking up the difference."""
    return HourlyProfile(
        tuple(replace(hour, tokens=_shift(hour.tokens, factor)) for hour in profile.hours)
    )


def _shift(tokens: TokenCounts, factor: Decimal) -> TokenCounts:
    output = min(tokens.output * factor, tokens.total)
    input_ = tokens.total - output
    # Cached input stays the share of input that it was.
    share = divide(tokens.cached_input, tokens.input) if tokens.input else Decimal(0)
    return TokenCounts(input_, input_ * share, output)


def _make_row(figure: str, factor: Decimal, comparison: Comparison) -> SensitivityRow:
    best = comparison.get(comparison.best)
    return SensitivityRow(
        figure=figure,
        factor=factor,
        serverless=comparison.serverless.per_month or Decimal(0),
        dedicated=comparison.dedicated.per_month,
        hybrid=comparison.hybrid.per_month,
        best=comparison.best,
        replicas=best.replicas + best.spare_replicas,
    )
