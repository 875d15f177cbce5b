"""How charges spread over requests, from the events themselves: exact, in NUMERIC arithmetic.

Requests that were charged the same are counted together first, so that only amounts are sorted, and
of those there are far fewer than requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from billing.costing.distribution import CostDistribution
from billing.costing.wide_decimal import divide
from billing.usage.request_filter import RequestFilter

# Ranks in whole numbers: the q-th percentile of n is that of rank ceil(q n / 100).
_SPREADS = """
WITH amounts AS (
    SELECT currency, charge, count(*) AS requests
    FROM usage_events
    WHERE status NOT IN ('rejected', 'failed', 'voided')
        AND started_at >= :from_at AND started_at < :to_at
        AND (CAST(:organization_id AS text) IS NULL OR organization_id = :organization_id)
        AND (CAST(:project_id AS text) IS NULL OR project_id = :project_id)
        AND (CAST(:route AS text) IS NULL OR route = :route)
    GROUP BY currency, charge
), ranked AS (
    SELECT currency, charge, requests,
        sum(requests) OVER (PARTITION BY currency ORDER BY charge NULLS LAST) AS rank,
        sum(requests) FILTER (WHERE charge IS NOT NULL) OVER (PARTITION BY currency) AS n
    FROM amounts
)
SELECT currency, max(n)::bigint AS requests, sum(charge * requests) AS total,
    min(charge) FILTER (WHERE rank >= ceil(0.50 * n)) AS median,
    min(charge) FILTER (WHERE rank >= ceil(0.95 * n)) AS p95,
    min(charge) FILTER (WHERE rank >= ceil(0.99 * n)) AS p99,
    max(charge) AS most,
    max(ceil(0.01 * n))::bigint AS top_requests,
    sum(charge * greatest(0, least(requests, rank - (n - ceil(0.01 * n))))) AS top_total,
    coalesce(sum(requests) FILTER (WHERE charge IS NULL), 0)::bigint AS unpriced_requests
FROM ranked GROUP BY currency ORDER BY requests DESC NULLS LAST, currency
"""


@dataclass(frozen=True, slots=True)
class ChargeSpreads:
    """The spread in each currency, the one with most requests first. Requests that end unbilled
    (rejected, failed, voided) are left out; those without a price are counted."""

    by_currency: tuple[tuple[str, CostDistribution], ...]
    unpriced_requests: int


async def spread_ledger(session: AsyncSession, wanted: RequestFilter) -> ChargeSpreads:
    """Return how the charges of these requests spread; ``route`` is what served."""
    rows = (await session.execute(text(_SPREADS), wanted.to_parameters())).all()
    return ChargeSpreads(
        by_currency=tuple(
            (
                row.currency,
                _distribution(
                    row.requests,
                    row.total,
                    (row.median, row.p95, row.p99, row.most),
                    (row.top_requests, row.top_total),
                ),
            )
            for row in rows
            if row.requests
        ),
        unpriced_requests=sum(row.unpriced_requests for row in rows),
    )


def _distribution(
    requests: int,
    total: Decimal,
    ranked: tuple[Decimal, Decimal, Decimal, Decimal],
    top: tuple[int, Decimal],
) -> CostDistribution:
    median, p95, p99, most = ranked
    return CostDistribution(
        requests=requests,
        total=total,
        mean=divide(total, requests),
        median=median,
        p95=p95,
        p99=p99,
        most=most,
        top_requests=top[0],
        top_share=divide(top[1], total) if total else None,
        p99_to_median=divide(p99, median) if median else None,
    )
