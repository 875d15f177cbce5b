"""How costs spread over requests: a mean hides that few requests make the bill. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from billing.costing.errors import CostingError
from billing.costing.wide_decimal import divide, round_up, wide

_TOP_SHARE = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class CostDistribution:
    """The spread of charges. Percentiles are nearest rank: each is a charge that really occurred."""

    requests: int
    total: Decimal
    mean: Decimal
    median: Decimal
    p95: Decimal
    p99: Decimal
    most: Decimal
    top_requests: int  # the dearest hundredth, rounded up
    top_share: Decimal | None  # of the bill, 0 to 1; None for a bill of 0
    p99_to_median: Decimal | None  # None where the median is 0


@wide
def spread_charges(charges: Iterable[Decimal]) -> CostDistribution:
    """Return how ``charges`` spread. Raises :class:`CostingError` for none, or one below 0."""
    ordered = sorted(charges)
    if not ordered:
        raise CostingError("there are no charges to spread")
    if ordered[0] < 0:
        raise CostingError("a charge is below 0")
    total = sum(ordered, Decimal(0))
    top = round_up(_TOP_SHARE * len(ordered))
    median = get_percentile(ordered, Decimal("0.5"))
    p99 = get_percentile(ordered, Decimal("0.99"))
    return CostDistribution(
        requests=len(ordered),
        total=total,
        mean=divide(total, len(ordered)),
        median=median,
        p95=get_percentile(ordered, Decimal("0.95")),
        p99=p99,
        most=ordered[-1],
        top_requests=top,
        top_share=divide(sum(ordered[-top:], Decimal(0)), total) if total else None,
        p99_to_median=divide(p99, median) if median else None,
    )


def get_percentile(ordered: Sequence[Decimal], share: Decimal) -> Decimal:
    """Return the nearest-rank percentile of values in rising order; ``share`` above 0, at most 1."""
    return ordered[max(1, round_up(share * len(ordered))) - 1]
