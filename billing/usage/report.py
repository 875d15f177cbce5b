"""Usage summed up for people: from the hourly rollups, grouped and limited as asked.

Names of organizations, projects and keys come from the control plane's tables by SQL; a row whose
catalog entry is gone is shown under its id.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from billing.money import NO_CURRENCY, ZERO


class UsageGrouping(StrEnum):
    """What one row of a report stands for."""

    DAY = "day"
    HOUR = "hour"
    ORGANIZATION = "organization"
    PROJECT = "project"
    KEY = "key"
    ROUTE = "route"


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """Which usage to report: hours that begin in [from_at, to_at), of these owners if given."""

    from_at: datetime
    to_at: datetime
    organization_id: str | None = None
    project_id: str | None = None
    api_key_id: str | None = None
    route: str | None = None
    time_zone: str = "UTC"  # of the days; IANA name


@dataclass(frozen=True, slots=True)
class UsageSums:
    """Sums over requests; ``charge`` leaves out the unpriced ones, which are counted."""

    currency: str
    requests: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    charge: Decimal
    unpriced_requests: int


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One group in one currency. ``group`` is an id, or ISO text of a day or hour."""

    group: str
    label: str
    sums: UsageSums


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Rows and their total per currency, the currency with most requests first.

    ``totals`` is never empty: without usage it holds one of zeros.
    """

    rows: tuple[UsageRow, ...]
    totals: tuple[UsageSums, ...]


# Group expression, label expression, join. Constants of ours, never input.
_GROUPS: dict[UsageGrouping, tuple[str, str, str]] = {
    UsageGrouping.DAY: (
        "to_char(r.hour AT TIME ZONE :time_zone, 'YYYY-MM-DD')",
        "to_char(r.hour AT TIME ZONE :time_zone, 'YYYY-MM-DD')",
        "",
    ),
    UsageGrouping.HOUR: (
        "to_char(r.hour AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:00:00\"Z\"')",
        "to_char(r.hour AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:00:00\"Z\"')",
        "",
    ),
    UsageGrouping.ORGANIZATION: (
        "r.organization_id",
        "coalesce(n.name, r.organization_id)",
        "LEFT JOIN organizations n ON n.id = r.organization_id",
    ),
    UsageGrouping.PROJECT: (
        "r.project_id",
        "coalesce(n.name, r.project_id)",
        "LEFT JOIN projects n ON n.id = r.project_id",
    ),
    UsageGrouping.KEY: (
        "r.api_key_id",
        "coalesce(n.name, r.api_key_id)",
        "LEFT JOIN api_keys n ON n.id = r.api_key_id",
    ),
    UsageGrouping.ROUTE: ("r.route", "r.route", ""),
}

_SUMS = """
    r.currency,
    sum(r.requests)::bigint AS requests,
    sum(r.input_tokens)::numeric AS input_tokens,
    sum(r.cached_input_tokens)::numeric AS cached_input_tokens,
    sum(r.output_tokens)::numeric AS output_tokens,
    sum(r.reasoning_tokens)::numeric AS reasoning_tokens,
    sum(r.charge) AS charge,
    sum(r.unpriced_requests)::bigint AS unpriced_requests
"""

_OWNER_COLUMNS = ("organization_id", "project_id", "api_key_id", "route")


def filter_usage(usage_filter: UsageFilter) -> tuple[str, dict[str, Any]]:
    """Return the condition on rollups ``r``, and its parameters."""
    conditions = ["r.hour >= :from_at", "r.hour < :to_at", "r.requests > 0"]
    parameters: dict[str, Any] = {"from_at": usage_filter.from_at, "to_at": usage_filter.to_at}
    for column in _OWNER_COLUMNS:
        value = getattr(usage_filter, column)
        if value is not None:
            conditions.append(f"r.{column} = :{column}")
            parameters[column] = value
    return " AND ".join(conditions), parameters


def _sums_of(row: Any) -> UsageSums:
    return UsageSums(
        currency=row.currency,
        requests=row.requests,
        input_tokens=int(row.input_tokens),
        cached_input_tokens=int(row.cached_input_tokens),
        output_tokens=int(row.output_tokens),
        reasoning_tokens=int(row.reasoning_tokens),
        charge=row.charge,
        unpriced_requests=row.unpriced_requests,
    )


async def report_usage(
    session: AsyncSession, group_by: UsageGrouping, usage_filter: UsageFilter
) -> UsageReport:
    """Return usage by group: days and hours in order of time, others by charge, highest first."""
    where, parameters = filter_usage(usage_filter)
    group, label, join = _GROUPS[group_by]
    is_time = group_by in {UsageGrouping.DAY, UsageGrouping.HOUR}
    order = "group_key, currency" if is_time else "charge DESC, requests DESC, group_key, currency"
    if group_by is UsageGrouping.DAY:
        parameters_rows = {**parameters, "time_zone": usage_filter.time_zone}
    else:
        parameters_rows = parameters
    rows = await session.execute(
        text(
            f"SELECT {group} AS group_key, {label} AS label, {_SUMS}"  # noqa: S608
            f" FROM usage_rollups_hourly r {join} WHERE {where}"
            f" GROUP BY 1, 2, r.currency ORDER BY {order}"
        ),
        parameters_rows,
    )
    totals = await session.execute(
        text(
            f"SELECT {_SUMS} FROM usage_rollups_hourly r WHERE {where}"  # noqa: S608
            " GROUP BY r.currency ORDER BY requests DESC, r.currency"
        ),
        parameters,
    )
    sums = tuple(_sums_of(row) for row in totals)
    return UsageReport(
        rows=tuple(
            UsageRow(group=row.group_key, label=row.label, sums=_sums_of(row)) for row in rows
        ),
        totals=sums or (UsageSums(NO_CURRENCY, 0, 0, 0, 0, 0, ZERO, 0),),
    )
