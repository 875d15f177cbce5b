"""What routing among tiers has saved, over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from billing.money import ZERO, format_amount
from billing.usage.report import UsageGrouping
from billing.usage.savings import (
    RouteSavings,
    TierSavings,
    report_savings,
)
from gateway.controlplane.asked_requests import AskedRequestsDep
from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep
from gateway.controlplane.money_fields import AmountText, MoneyAmount
from gateway.controlplane.reports_api.usage_span import choose_span

router = APIRouter()


class SavingsAnswer(BaseModel):
    """Sums over requests; money is exact text.

    ``counterfactual_charge`` is what all of it would have cost at the price of the route's last
    tier, ``saving`` what of that was not charged. ``uncompared_requests`` have no charge or no such
    price: they are in none of the three.
    """

    requests: int
    input_tokens: int
    output_tokens: int
    charge: str
    counterfactual_charge: str
    saving: str
    uncompared_requests: int

    @classmethod
    def of(cls, sums: TierSavings) -> Self:
        """Return the answer about ``sums``."""
        return cls(**_sums_of(sums))


class TierSavingsAnswer(SavingsAnswer):
    """The requests that one tier served."""

    tier: str

    @classmethod
    def of_tier(cls, sums: TierSavings) -> Self:
        """Return the answer about one tier."""
        return cls(tier=sums.tier, **_sums_of(sums))


class OwnCostAnswer(BaseModel):
    """What calls of one purpose have cost the platform; ``unrated_calls`` are in no sum."""

    model_config = ConfigDict(from_attributes=True)

    calls: int
    cost: AmountText
    unrated_calls: int


class RouteSavingsAnswer(BaseModel):
    """One route in one currency; the dearest tier first.

    ``net_saving`` is the saving less what shadow evaluation has cost, less what the answers have
    that a cascade gave up for a dearer tier's, and less the classifier's predictions for these requests.
    """

    route: str
    currency: str
    total: SavingsAnswer
    shadow: OwnCostAnswer
    cascade: OwnCostAnswer
    classifier: OwnCostAnswer
    net_saving: str
    tiers: list[TierSavingsAnswer]

    @classmethod
    def of(cls, savings: RouteSavings) -> Self:
        """Return the answer about one route."""
        return cls(
            route=savings.route,
            currency=savings.currency,
            total=SavingsAnswer.of(savings.total),
            shadow=OwnCostAnswer.model_validate(savings.shadow),
            cascade=OwnCostAnswer.model_validate(savings.cascade),
            classifier=OwnCostAnswer.model_validate(savings.classifier),
            net_saving=format_amount(savings.net_saving),
            tiers=[TierSavingsAnswer.of_tier(one) for one in savings.tiers],
        )


class SavingsReportAnswer(BaseModel):
    """Requests that arrived in [from, to) at routes that have tiers."""

    model_config = ConfigDict(populate_by_name=True)

    from_: datetime = Field(alias="from")
    to: datetime
    data: list[RouteSavingsAnswer]


def _sums_of(sums: TierSavings) -> dict[str, object]:
    return {
        "requests": sums.requests,
        "input_tokens": sums.input_tokens,
        "output_tokens": sums.output_tokens,
        "charge": format_amount(sums.charge),
        "counterfactual_charge": format_amount(sums.counterfactual),
        "saving": format_amount(sums.saving),
        "uncompared_requests": sums.uncompared_requests,
    }


@router.get("/savings")
async def show_savings(
    session: ReadSessionDep,
    control_plane: ControlPlaneDep,
    asked: AskedRequestsDep,
    *,
    classifier_cost_per_million: Annotated[MoneyAmount, Query()] = ZERO,
) -> SavingsReportAnswer:
    """Return what the tiers of each route have saved, by default in the last thirty days.

    ``classifier_cost_per_million``: what a million predictions cost whoever runs this; 0 if not told.
    """
    span = choose_span(UsageGrouping.ROUTE, asked.from_at, asked.to_at, now=control_plane.clock())
    found = await report_savings(
        session,
        asked.within(span.from_at, span.to_at),
        per_million_scored=classifier_cost_per_million,
    )
    if not found:
        await asked.check_names(session)
    return SavingsReportAnswer(
        from_=span.from_at,
        to=span.to_at,
        data=[RouteSavingsAnswer.of(savings) for savings in found],
    )
