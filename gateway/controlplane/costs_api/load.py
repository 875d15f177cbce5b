"""The ledger's hours: what the crossover is computed from, told as a profile's file has it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from billing.costing.hourly_profile import LoadHour
from billing.costing.recorded_load import LoadRow, RecordedLoad
from billing.costing.token_counts import TokenCounts
from billing.money import NO_CURRENCY
from billing.usage.load_hours import RouteHour, find_first_hour, list_route_hours
from billing.usage.report import UsageFilter
from gateway.controlplane.check_filters import check_filters
from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep
from gateway.controlplane.costs_api.hours_span import HOUR, HoursSpan, choose_hours
from gateway.controlplane.database import ReadSession
from gateway.controlplane.money_fields import AmountText
from gateway.controlplane.text_fields import IdQuery
from gateway.controlplane.time_fields import Moment

router = APIRouter()


@dataclass(frozen=True, slots=True)
class LedgerHours:
    """The used hours of a span. Before the first use ever, hours are not hours of nothing: then it
    begins there."""

    span: HoursSpan
    first_use_at: datetime | None
    hours: list[RouteHour]

    @property
    def first_hour_at(self) -> datetime:
        """The first hour that is compared."""
        if self.first_use_at is None or self.first_use_at >= self.span.to_at:
            return self.span.from_at
        return max(self.span.from_at, self.first_use_at)

    @property
    def last_hour_at(self) -> datetime:
        """The last hour that is compared."""
        return self.span.to_at - HOUR

    @property
    def load(self) -> RecordedLoad:
        """The hours as costing takes them."""
        rows = tuple(_load_row(hour) for hour in self.hours)
        return RecordedLoad(rows, self.first_hour_at, self.last_hour_at)


def _load_row(hour: RouteHour) -> LoadRow:
    has_currency = hour.currency != NO_CURRENCY
    tokens = TokenCounts.of(
        input=hour.input_tokens,
        output=hour.output_tokens,
        cached_input=hour.cached_input_tokens,
    )
    charge = hour.charge if has_currency else None
    return LoadRow(
        hour.route,
        hour.currency if has_currency else None,
        LoadHour(hour.hour_at, hour.requests, tokens, charge),
        hour.unpriced_requests,
    )


async def read_hours(
    session: ReadSession,
    span: HoursSpan,
    *,
    organization_id: str | None = None,
    project_id: str | None = None,
) -> LedgerHours:
    """Return the ledger's hours in the span."""
    usage_filter = UsageFilter(
        span.from_at, span.to_at, organization_id=organization_id, project_id=project_id
    )
    first_use_at = await find_first_hour(session, usage_filter)
    return LedgerHours(span, first_use_at, await list_route_hours(session, usage_filter))


class RouteHourAnswer(BaseModel):
    """One route's use in one hour; ``charge`` leaves the unpriced requests out."""

    model_config = ConfigDict(from_attributes=True)

    hour: Annotated[datetime, Field(validation_alias="hour_at")]
    route: str
    currency: str
    requests: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    charge: AmountText
    unpriced_requests: int


class LoadAnswer(BaseModel):
    """The used hours; those between ``first_hour_at`` and ``last_hour_at`` that have none were quiet."""

    first_hour_at: datetime
    last_hour_at: datetime
    data: list[RouteHourAnswer]


@router.get("/load")
async def show_load(
    session: ReadSessionDep,
    control_plane: ControlPlaneDep,
    *,
    from_at: Annotated[Moment | None, Query(alias="from")] = None,
    to_at: Annotated[Moment | None, Query(alias="to")] = None,
    organization_id: IdQuery = None,
    project_id: IdQuery = None,
) -> LoadAnswer:
    """Return the load by hour and route, of finished hours: a profile for ``forebay report``."""
    span = choose_hours(from_at, to_at, now=control_plane.clock())
    found = await read_hours(session, span, organization_id=organization_id, project_id=project_id)
    if not found.hours:
        await check_filters(session, organization_id=organization_id, project_id=project_id)
    return LoadAnswer(
        first_hour_at=found.first_hour_at,
        last_hour_at=found.last_hour_at,
        data=[RouteHourAnswer.model_validate(hour) for hour in found.hours],
    )
