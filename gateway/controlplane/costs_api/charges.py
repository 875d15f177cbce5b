"""How charges spread over requests, over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from billing.costing.distribution import CostDistribution
from billing.costing.plain_report import to_plain
from billing.usage.charge_spread import spread_ledger
from billing.usage.report import UsageGrouping
from gateway.controlplane.asked_requests import AskedRequestsDep
from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep
from gateway.controlplane.reports_api.usage_span import choose_span

router = APIRouter()


class ChargeSpreadAnswer(BaseModel):
    """The spread in one currency. Percentiles are charges that occurred; ``top_share`` is what the
    ``top_requests`` dearest, a hundredth of all, pay of the bill: 0 to 1, null for a bill of 0."""

    currency: str
    requests: int
    total: str
    mean: str
    median: str
    p95: str
    p99: str
    most: str
    top_requests: int
    top_share: str | None
    p99_to_median: str | None

    @classmethod
    def of(cls, currency: str, spread: CostDistribution) -> Self:
        """Return the answer about one currency."""
        return cls(currency=currency, **to_plain(spread))


class ChargeSpreadsAnswer(BaseModel):
    """Requests that arrived in [from, to) and were billed; the others are counted or left out."""

    model_config = ConfigDict(populate_by_name=True)

    from_: datetime = Field(alias="from")
    to: datetime
    data: list[ChargeSpreadAnswer]
    unpriced_requests: int


@router.get("/charges/spread")
async def show_charge_spread(
    session: ReadSessionDep, control_plane: ControlPlaneDep, asked: AskedRequestsDep
) -> ChargeSpreadsAnswer:
    """Return how charges spread over requests, by default over the last thirty days."""
    span = choose_span(UsageGrouping.ROUTE, asked.from_at, asked.to_at, now=control_plane.clock())
    found = await spread_ledger(session, asked.within(span.from_at, span.to_at))
    if not found.by_currency and not found.unpriced_requests:
        await asked.check_names(session)
    return ChargeSpreadsAnswer(
        from_=span.from_at,
        to=span.to_at,
        data=[ChargeSpreadAnswer.of(currency, spread) for currency, spread in found.by_currency],
        unpriced_requests=found.unpriced_requests,
    )
