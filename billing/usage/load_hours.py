"""The load by hour and route, as costing compares it: from the hourly rollups."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from billing.usage.report import UsageFilter, filter_usage

_EVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RouteHour:
    """What one route was used for in one hour, in one currency.

    ``charge`` leaves out the unpriced requests, which are counted.
    """

    hour_at: datetime
    route: str
    currency: str
    requests: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    charge: Decimal
    unpriced_requests: int


async def list_route_hours(session: AsyncSession, usage_filter: UsageFilter) -> list[RouteHour]:
    """Return the used hours that begin in the filter's span, by time, route and currency."""
    where, parameters = filter_usage(usage_filter)
    rows = await session.execute(
        text(
            "SELECT r.hour, r.route, r.currency, sum(r.requests)::bigint AS requests,"  # noqa: S608
            " sum(r.input_tokens)::numeric AS input_tokens,"
            " sum(r.cached_input_tokens)::numeric AS cached_input_tokens,"
            " sum(r.output_tokens)::numeric AS output_tokens, sum(r.charge) AS charge,"
            " sum(r.unpriced_requests)::bigint AS unpriced_requests"
            f" FROM usage_rollups_hourly r WHERE {where} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        ),
        parameters,
    )
    return [
        RouteHour(
            hour_at=row.hour,
            route=row.route,
            currency=row.currency,
            requests=row.requests,
            input_tokens=int(row.input_tokens),
            cached_input_tokens=int(row.cached_input_tokens),
            output_tokens=int(row.output_tokens),
            charge=row.charge,
            unpriced_requests=row.unpriced_requests,
        )
        for row in rows
    ]


async def find_first_hour(session: AsyncSession, usage_filter: UsageFilter) -> datetime | None:
    """Return the first hour that the filter's owners ever used, before its span too; None: never."""
    ever = replace(usage_filter, from_at=_EVER)
    where, parameters = filter_usage(ever)
    found: datetime | None = await session.scalar(
        text(f"SELECT min(r.hour) FROM usage_rollups_hourly r WHERE {where}"),  # noqa: S608
        parameters,
    )
    return found
