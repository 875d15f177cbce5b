"""How requests were served, over HTTP: percentiles, goodput, and what a good request cost."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from billing.costing.plain_report import to_plain
from billing.costing.wide_decimal import divide
from billing.money import format_amount
from billing.usage.serving import (
    FIGURES,
    MOST_EVENTS,
    ServingFilter,
    ServingGrouping,
    ServingRow,
    report_serving,
)
from gateway.controlplane.catalog import repository as catalog
from gateway.controlplane.check_filters import check_filters
from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep
from gateway.controlplane.costs_api.hours_span import widen_to_hours
from gateway.controlplane.money_fields import MoneyAmount
from gateway.controlplane.text_fields import IdQuery
from gateway.controlplane.time_fields import Moment

router = APIRouter()
_DEFAULT_SPAN = timedelta(days=1)
_SECONDS_PER_HOUR = 3600
Milliseconds = Annotated[MoneyAmount | None, Query()]


class PercentilesAnswer(BaseModel):
    """Of one time, in milliseconds; null where no request had it."""

    p50: str | None = None
    p95: str | None = None
    p99: str | None = None


class ServingRowAnswer(BaseModel):
    """One group. Met is what completed within every limit that was given.

    ``requests``, ``unpriced_requests`` and ``charge`` are of all; ``measured_requests`` fewer than
    these: a sample was read. ``unjudged_requests`` completed, but were not streamed: a limit of TTFT
    or TPOT says nothing of them. ``…_per_met_request`` spread everything that was judged, met or
    not, over what was met; charges over those that have a price. Without any price both are null,
    and the cost, too, where it is that of several rows together.
    """

    group: str
    label: str
    requests: int
    measured_requests: int
    completed_requests: int
    judged_requests: int
    unjudged_requests: int
    met_requests: int
    met_share: str | None
    goodput_requests_per_second: str
    goodput_tokens_per_second: str
    ttft_ms: PercentilesAnswer
    tpot_ms: PercentilesAnswer
    e2e_ms: PercentilesAnswer
    currency: str | None
    charge: str | None
    unpriced_requests: int
    charge_per_met_request: str | None
    cost_per_met_request: str | None

    @classmethod
    def of(cls, row: ServingRow, cost_per_hour: Decimal | None) -> Self:
        """Return the answer about ``row``; ``cost_per_hour`` is what serving costs, if told."""
        met, priced = row.met_requests, row.priced_met_requests
        charge = None if row.charge is None else max(Decimal(0), row.charge - row.unjudged_charge)
        per_met = None if charge is None or not priced else divide(charge, priced)
        return cls(
            group=row.group,
            label=row.label,
            requests=row.requests,
            measured_requests=row.measured_requests,
            completed_requests=row.completed_requests,
            judged_requests=row.judged_requests,
            unjudged_requests=row.unjudged_requests,
            met_requests=met,
            met_share=to_plain(row.met_share),
            goodput_requests_per_second=_per_second(met, row),
            goodput_tokens_per_second=_per_second(row.met_tokens, row),
            **{
                figure: PercentilesAnswer(**to_plain(row.percentiles[figure]))
                if figure in row.percentiles
                else PercentilesAnswer()
                for figure in FIGURES
            },
            currency=row.currency,
            charge=None if row.charge is None else format_amount(row.charge),
            charge_per_met_request=to_plain(per_met),
            unpriced_requests=row.unpriced_requests,
            cost_per_met_request=to_plain(_cost_per_met(row, cost_per_hour)),
        )


def _cost_per_met(row: ServingRow, cost_per_hour: Decimal | None) -> Decimal | None:
    """Return what serving cost a met request; of requests that cannot be judged their part, by
    number, is left out."""
    if cost_per_hour is None or not row.met_requests:
        return None
    cost = divide(cost_per_hour, _SECONDS_PER_HOUR) * row.seconds
    judged = divide(row.judged_requests, row.judged_requests + row.unjudged_requests)
    return divide(cost * judged, row.met_requests)


def _per_second(count: int, row: ServingRow) -> str:
    return str(to_plain(divide(count, row.seconds) if row.seconds else Decimal(0)))


class ServingAnswer(BaseModel):
    """Requests that arrived in the whole hours [from, to)."""

    model_config = ConfigDict(populate_by_name=True)

    from_: datetime = Field(alias="from")
    to: datetime
    limits: dict[str, str]
    data: list[ServingRowAnswer]
    total: ServingRowAnswer


@router.get("/serving")
async def show_serving(
    session: ReadSessionDep,
    control_plane: ControlPlaneDep,
    *,
    group_by: ServingGrouping = ServingGrouping.ROUTE,
    from_at: Annotated[Moment | None, Query(alias="from")] = None,
    to_at: Annotated[Moment | None, Query(alias="to")] = None,
    route: IdQuery = None,
    deployment: IdQuery = None,
    ttft_ms: Milliseconds = None,
    tpot_ms: Milliseconds = None,
    e2e_ms: Milliseconds = None,
    cost_per_hour: Annotated[MoneyAmount | None, Query()] = None,
) -> ServingAnswer:
    """Return times, goodput and the cost of what met the limits; by default of the last day."""
    now = control_plane.clock()
    span = widen_to_hours(from_at, to_at, now=now, usual=_DEFAULT_SPAN)
    found = None if deployment is None else await catalog.find_deployment(session, deployment)
    told = {"ttft_ms": ttft_ms, "tpot_ms": tpot_ms, "e2e_ms": e2e_ms}
    limits = {figure: limit for figure, limit in told.items() if limit is not None}
    report = await report_serving(
        session,
        group_by,
        ServingFilter(
            span.from_at,
            span.to_at,
            route=route,
            deployment_id=deployment if found is None else found.id,
            limits=limits,
        ),
        now=now,
        most_events=MOST_EVENTS,
    )
    if not report.rows:
        await check_filters(session, route=route, deployment=deployment)
    # What GPUs cost that several routes or deployments use cannot be told apart from here.
    is_own = group_by is ServingGrouping.HOUR or len(report.rows) == 1
    return ServingAnswer(
        from_=span.from_at,
        to=span.to_at,
        limits={figure: format_amount(limit) for figure, limit in limits.items()},
        data=[ServingRowAnswer.of(row, cost_per_hour if is_own else None) for row in report.rows],
        total=ServingRowAnswer.of(report.total, cost_per_hour),
    )
