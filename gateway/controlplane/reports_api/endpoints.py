"""Usage, latest requests and receipts over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from billing.usage.receipts import list_latest_requests
from billing.usage.report import UsageFilter, UsageGrouping, report_usage
from gateway.controlplane.check_filters import check_filters
from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep
from gateway.controlplane.listing import Listing
from gateway.controlplane.reports_api.find_receipt import get_receipt
from gateway.controlplane.reports_api.receipt_schemas import ReceiptAnswer, RequestAnswer
from gateway.controlplane.reports_api.schemas import UsageAnswer
from gateway.controlplane.reports_api.usage_span import choose_span
from gateway.controlplane.text_fields import IdQuery, TimeZoneName
from gateway.controlplane.time_fields import Moment

router = APIRouter()
# Opens for a data plane's token too, see app.py.
receipt_router = APIRouter()


@router.get("/usage")
async def show_usage(
    session: ReadSessionDep,
    control_plane: ControlPlaneDep,
    *,
    group_by: UsageGrouping = UsageGrouping.DAY,
    from_at: Annotated[Moment | None, Query(alias="from")] = None,
    to_at: Annotated[Moment | None, Query(alias="to")] = None,
    time_zone: TimeZoneName = "UTC",
    organization_id: IdQuery = None,
    project_id: IdQuery = None,
    api_key_id: IdQuery = None,
    route: IdQuery = None,
) -> UsageAnswer:
    """Return usage by group: days and hours in order of time, others by charge, highest first."""
    span = choose_span(group_by, from_at, to_at, now=control_plane.clock())
    report = await report_usage(
        session,
        group_by,
        UsageFilter(
            from_at=span.from_at,
            to_at=span.to_at,
            organization_id=organization_id,
            project_id=project_id,
            api_key_id=api_key_id,
            route=route,
            time_zone=time_zone,
        ),
    )
    if not report.rows:
        await check_filters(
            session,
            organization_id=organization_id,
            project_id=project_id,
            api_key_id=api_key_id,
            route=route,
        )
    return UsageAnswer.of(report, from_at=span.from_at, to_at=span.to_at, time_zone=time_zone)


@router.get("/requests")
async def list_requests(
    session: ReadSessionDep,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    organization_id: IdQuery = None,
    project_id: IdQuery = None,
) -> Listing[RequestAnswer]:
    """Return the requests that arrived last, newest first."""
    found = await list_latest_requests(
        session, limit=limit, organization_id=organization_id, project_id=project_id
    )
    if not found:
        await check_filters(session, organization_id=organization_id, project_id=project_id)
    return Listing(data=[RequestAnswer.of(receipt) for receipt in found])


@receipt_router.get("/receipts/{request_id}")
async def show_receipt(
    request_id: str, control_plane: ControlPlaneDep, project_id: IdQuery = None
) -> ReceiptAnswer:
    """Return the receipt of one request."""
    receipt = await get_receipt(control_plane, request_id=request_id, project_id=project_id)
    return ReceiptAnswer.of(receipt)
