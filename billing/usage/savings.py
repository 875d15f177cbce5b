"""What routing among tiers has saved: what was charged, beside all of it sent to the last tier.

From the events themselves and the prices that they were rated with, in exact NUMERIC arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from billing.money import EXACT, ZERO
from billing.usage.request_filter import RequestFilter

# A request of which nothing is charged would have cost nothing elsewhere either: it failed, or its client
# left before anything was counted. Counts that cost nothing at a price of 0 would have.
_ROWS = """
WITH compared AS (
    SELECT e.requested_route, e.currency, e.tier, e.tier_score, e.input_tokens, e.output_tokens,
        e.charge,
        e.charge IS NOT NULL AND c.id IS NOT NULL AS is_compared,
        0.000001 * (
            (coalesce(e.input_tokens, 0) - coalesce(e.cached_input_tokens, 0))
                * c.input_per_million
            + coalesce(e.cached_input_tokens, 0)
                * coalesce(c.cached_input_per_million, c.input_per_million)
            + coalesce(e.output_tokens, 0) * c.output_per_million) AS counterfactual
    FROM usage_events e
    LEFT JOIN prices c ON c.id = e.counterfactual_price_id
    WHERE e.tier IS NOT NULL AND e.status NOT IN ('rejected', 'failed', 'voided')
        AND (e.charge IS DISTINCT FROM 0
            OR coalesce(e.input_tokens, 0) + coalesce(e.output_tokens, 0) > 0)
        AND e.started_at >= :from_at AND e.started_at < :to_at
        AND (CAST(:organization_id AS text) IS NULL OR e.organization_id = :organization_id)
        AND (CAST(:project_id AS text) IS NULL OR e.project_id = :project_id)
        AND (CAST(:route AS text) IS NULL OR e.requested_route = :route)
)
SELECT requested_route, currency, tier, count(*) AS requests,
    coalesce(sum(input_tokens), 0)::numeric AS input_tokens,
    coalesce(sum(output_tokens), 0)::numeric AS output_tokens,
    coalesce(sum(charge) FILTER (WHERE is_compared), 0) AS charge,
    coalesce(sum(counterfactual) FILTER (WHERE is_compared), 0) AS counterfactual,
    count(*) FILTER (WHERE NOT is_compared) AS uncompared_requests,
    count(tier_score) AS scored_requests
FROM compared GROUP BY 1, 2, 3
ORDER BY requested_route, currency, counterfactual DESC, tier
"""


# What the platform asked for its own sake, by the same owners and the same route.
_OWN_CALLS = """
SELECT requested_route, currency, kind = 'cascade' AS is_cascade, count(*) AS calls, coalesce(sum(charge), 0) AS cost,
    count(*) FILTER (WHERE charge IS NULL) AS unrated_calls
FROM shadow_calls s
WHERE s.started_at >= :from_at AND s.started_at < :to_at
    AND (CAST(:organization_id AS text) IS NULL OR s.organization_id = :organization_id)
    AND (CAST(:project_id AS text) IS NULL OR s.project_id = :project_id)
    AND (CAST(:route AS text) IS NULL OR s.requested_route = :route)
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""


@dataclass(frozen=True, slots=True)
class TierSavings:
    """The requests that one tier served; ``charge`` and ``counterfactual`` are of the compared ones.

    ``counterfactual`` is what the same tokens cost at the price of the route's last tier. A request
    without a charge or without that price is one of ``uncompared_requests``.
    """

    tier: str
    requests: int
    input_tokens: int
    output_tokens: int
    charge: Decimal
    counterfactual: Decimal
    uncompared_requests: int
    scored_requests: int = 0  # by the classifier

    @property
    def saving(self) -> Decimal:
        """What was not charged; negative where routing has cost more than it saved."""
        return EXACT.subtract(self.counterfactual, self.charge)


@dataclass(frozen=True, slots=True)
class OwnCost:
    """What calls of one purpose have cost the platform; ``unrated_calls`` are in no sum."""

    calls: int
    cost: Decimal
    unrated_calls: int


NO_COST = OwnCost(0, ZERO, 0)


@dataclass(frozen=True, slots=True)
class RouteSavings:
    """One route that has tiers, in one currency.

    ``shadow``: of shadow evaluation; ``cascade``: of answers that were given up for a dearer tier's;
    ``classifier``: of the predictions for these requests.
    """

    route: str
    currency: str
    tiers: tuple[TierSavings, ...]
    shadow: OwnCost = NO_COST
    cascade: OwnCost = NO_COST
    classifier: OwnCost = NO_COST

    @property
    def net_saving(self) -> Decimal:
        """What was not charged, less what the classifier, shadow evaluation and cascades have cost."""
        own = (self.shadow.cost, self.cascade.cost, self.classifier.cost)
        return EXACT.subtract(self.total.saving, _add(own))

    @property
    def total(self) -> TierSavings:
        """All tiers together."""
        return TierSavings(
            tier="",
            requests=sum(one.requests for one in self.tiers),
            input_tokens=sum(one.input_tokens for one in self.tiers),
            output_tokens=sum(one.output_tokens for one in self.tiers),
            charge=_add(one.charge for one in self.tiers),
            counterfactual=_add(one.counterfactual for one in self.tiers),
            uncompared_requests=sum(one.uncompared_requests for one in self.tiers),
            scored_requests=sum(one.scored_requests for one in self.tiers),
        )


async def report_savings(
    session: AsyncSession, wanted: RequestFilter, *, per_million_scored: Decimal = ZERO
) -> list[RouteSavings]:
    """Return what each route's tiers have saved, by route and currency.

    ``route`` is what was asked for; ``per_million_scored`` what a million of the classifier's
    predictions cost, in each of the currencies.
    """
    parameters = wanted.to_parameters()
    rows = (await session.execute(text(_ROWS), parameters)).all()
    tiers = {
        key: tuple(_tier_of(row) for row in group)
        for key, group in groupby(rows, key=lambda row: (row.requested_route, row.currency))
    }
    shadows: dict[tuple[str, str], OwnCost] = {}
    cascades: dict[tuple[str, str], OwnCost] = {}
    for row in await session.execute(text(_OWN_CALLS), parameters):
        found = cascades if row.is_cascade else shadows
        found[row.requested_route, row.currency] = OwnCost(row.calls, row.cost, row.unrated_calls)
    return [
        RouteSavings(
            *key,
            served := tiers.get(key, ()),
            shadows.get(key, NO_COST),
            cascades.get(key, NO_COST),
            _cost_of_scoring(served, per_million_scored),
        )
        for key in sorted({*tiers, *shadows, *cascades})
    ]


def _cost_of_scoring(tiers: Iterable[TierSavings], per_million: Decimal) -> OwnCost:
    calls = sum(one.scored_requests for one in tiers)
    return OwnCost(calls, EXACT.multiply(per_million, Decimal(calls).scaleb(-6)), 0)


def _tier_of(row: Any) -> TierSavings:
    return TierSavings(
        tier=row.tier,
        requests=row.requests,
        input_tokens=int(row.input_tokens),
        output_tokens=int(row.output_tokens),
        charge=row.charge,
        counterfactual=row.counterfactual,
        uncompared_requests=row.uncompared_requests,
        scored_requests=row.scored_requests,
    )


def _add(amounts: Iterable[Decimal]) -> Decimal:
    total = ZERO
    for amount in amounts:
        total = EXACT.add(total, amount)
    return total
