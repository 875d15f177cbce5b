"""How requests were served: times, and what met the times that were promised, from the events.

Percentiles cannot be added up, and goodput needs a request's times side by side, for limits that are
only known when somebody asks: so the events are read, and nothing is kept beside them. What is read
stays bounded: beyond :data:`MOST_EVENTS` a sample of the table's pages, always the same one. How many
requests there were and what they were charged is exact all the same: that is in the rollups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from billing.costing.wide_decimal import divide
from billing.usage.report import UsageFilter, filter_usage

MOST_EVENTS = 200_000  # read for one report; of so many a p99 is that of 98.95 to 99.05 %
FIGURES = ("ttft_ms", "tpot_ms", "e2e_ms")
_HOUR = timedelta(hours=1)


class ServingGrouping(StrEnum):
    """What one row of a report stands for."""

    ROUTE = "route"
    DEPLOYMENT = "deployment"
    HOUR = "hour"


@dataclass(frozen=True, slots=True)
class ServingFilter:
    """Which requests: those that arrived in whole hours [from_at, to_at), of one route or deployment
    if given. ``limits`` are the longest times that meet the objective, in milliseconds, by figure."""

    from_at: datetime
    to_at: datetime
    route: str | None = None
    deployment_id: str | None = None
    limits: Mapping[str, Decimal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of one time of the completed requests, in milliseconds: each one that occurred."""

    p50: Decimal
    p95: Decimal
    p99: Decimal


@dataclass(frozen=True, slots=True)
class ServingRow:
    """One group. ``requests`` and ``charge`` are exact; the rest is of the ``measured_requests``.

    Judged are all that did not end by the client's doing (rejected, client closed). Met is what
    completed, within each limit of a time that it has: a whole reply has no TTFT, one token no TPOT.
    ``met_requests`` and ``met_tokens`` (output) are put up to all requests where a sample was read.
    """

    group: str
    label: str
    requests: int
    measured_requests: int
    completed_requests: int
    judged_requests: int
    met_requests: int
    met_share: Decimal | None  # of the judged
    met_tokens: int
    seconds: int  # that the group's requests arrived in
    percentiles: Mapping[str, Percentiles]  # by figure; without those that no request has
    currency: str | None  # None: none, or several
    charge: Decimal | None  # of all, met or not


@dataclass(frozen=True, slots=True)
class ServingReport:
    """Rows by group, and all together."""

    rows: tuple[ServingRow, ...]
    total: ServingRow


# Group and label expressions; constants of ours, never input. Both tables are called r.
_HOUR_TEXT = "to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:00:00\"Z\"')"
_GROUPS = {
    None: ("''", "''"),
    ServingGrouping.ROUTE: ("r.route", "r.route"),
    ServingGrouping.DEPLOYMENT: ("r.deployment_id", "r.deployment_id"),
    ServingGrouping.HOUR: (_HOUR_TEXT.format("r.hour"), _HOUR_TEXT.format("r.started_at")),
}
_SUMS = """
SELECT {group} AS group_key, sum(r.requests)::bigint AS requests,
    count(DISTINCT r.currency) FILTER (WHERE r.currency <> 'XXX') AS currencies,
    max(r.currency) FILTER (WHERE r.currency <> 'XXX') AS currency, sum(r.charge) AS charge
FROM usage_rollups_hourly r WHERE {where} GROUP BY 1 ORDER BY {order}
"""
_PERCENTILES = """
    CAST(percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY CAST(r.{0} AS float8))
        FILTER (WHERE r.status = 'completed') AS numeric(14, 3)[]) AS {0}
"""
_EVENTS = """
SELECT {group} AS group_key, count(*) AS measured,
    count(*) FILTER (WHERE r.status = 'completed') AS completed,
    count(*) FILTER (WHERE r.status NOT IN ('rejected', 'client_closed')) AS judged,
    count(*) FILTER (WHERE {is_met}) AS met,
    coalesce(sum(r.output_tokens) FILTER (WHERE {is_met}), 0)::bigint AS met_tokens,
    {percentiles}
FROM usage_events r {sample}
WHERE r.started_at >= :from_at AND r.started_at < :to_at
    AND (CAST(:route AS text) IS NULL OR r.route = :route)
    AND (CAST(:deployment_id AS text) IS NULL OR r.deployment_id = :deployment_id)
GROUP BY 1
"""


async def report_serving(
    session: AsyncSession,
    group_by: ServingGrouping,
    serving_filter: ServingFilter,
    *,
    now: datetime,
    most_events: int = MOST_EVENTS,
) -> ServingReport:
    """Return how requests were served: hours in order of time, others by requests, most first."""
    totals = await _list_sums(session, None, serving_filter)
    everything = totals[0].requests if totals else 0
    share = min(1.0, most_events / everything) if everything else 1.0
    total = await _list_rows(session, None, serving_filter, totals, now=now, share=share)
    sums = await _list_sums(session, group_by, serving_filter)
    rows = await _list_rows(session, group_by, serving_filter, sums, now=now, share=share)
    nothing = ServingRow("", "", 0, 0, 0, 0, 0, None, 0, 0, {}, None, None)
    return ServingReport(tuple(rows), total[0] if total else nothing)


async def _list_sums(
    session: AsyncSession, group_by: ServingGrouping | None, serving_filter: ServingFilter
) -> list[Any]:
    where, parameters = filter_usage(
        UsageFilter(serving_filter.from_at, serving_filter.to_at, route=serving_filter.route)
    )
    if serving_filter.deployment_id is not None:
        where += " AND r.deployment_id = :deployment_id"
        parameters["deployment_id"] = serving_filter.deployment_id
    order = "1" if group_by is ServingGrouping.HOUR else "requests DESC, 1"
    statement = _SUMS.format(group=_GROUPS[group_by][0], where=where, order=order)
    return list(await session.execute(text(statement), parameters))


async def _list_rows(
    session: AsyncSession,
    group_by: ServingGrouping | None,
    serving_filter: ServingFilter,
    sums: list[Any],
    *,
    now: datetime,
    share: float,
) -> list[ServingRow]:
    is_met = ["r.status = 'completed'"]
    parameters: dict[str, Any] = {
        "from_at": serving_filter.from_at,
        "to_at": serving_filter.to_at,
        "route": serving_filter.route,
        "deployment_id": serving_filter.deployment_id,
    }
    for figure in FIGURES:
        if figure in serving_filter.limits:
            is_met.append(f"coalesce(r.{figure} <= :{figure}, true)")
            parameters[figure] = serving_filter.limits[figure]
    statement = _EVENTS.format(
        group=_GROUPS[group_by][1],
        is_met=" AND ".join(is_met),
        percentiles=",".join(_PERCENTILES.format(figure) for figure in FIGURES),
        # Whole pages, the same ones each time.
        sample=f"TABLESAMPLE SYSTEM ({share * 100:.6f}) REPEATABLE (1)" if share < 1 else "",
    )
    measured = {row.group_key: row for row in await session.execute(text(statement), parameters)}
    labels = {}
    if group_by is ServingGrouping.DEPLOYMENT:
        labels = {
            row.id: row.name
            for row in await session.execute(text("SELECT id, name FROM deployments"))
        }
    return [
        _make_row(
            one,
            measured.get(one.group_key),
            label=labels.get(one.group_key, one.group_key),
            seconds=_count_seconds(one.group_key, group_by, serving_filter, now),
        )
        for one in sums
    ]


def _count_seconds(
    group: str, group_by: ServingGrouping | None, serving_filter: ServingFilter, now: datetime
) -> int:
    """Return how long the group's requests may have arrived; what is still to come is left out."""
    begin, end = serving_filter.from_at, serving_filter.to_at
    if group_by is ServingGrouping.HOUR:
        begin = datetime.fromisoformat(group)
        end = begin + _HOUR
    return max(1, int((min(end, now) - begin).total_seconds()))


def _make_row(sums: Any, measured: Any, *, label: str, seconds: int) -> ServingRow:
    seen = measured.measured if measured is not None else 0
    met = met_tokens = 0
    if seen:
        factor = divide(max(sums.requests, seen), seen)
        met, met_tokens = (round(factor * n) for n in (measured.met, measured.met_tokens))
    judged = measured.judged if seen else 0
    is_one = sums.currencies == 1
    return ServingRow(
        group=sums.group_key,
        label=label,
        requests=sums.requests,
        measured_requests=seen,
        completed_requests=measured.completed if seen else 0,
        judged_requests=judged,
        met_requests=met,
        met_share=divide(measured.met, judged) if judged else None,
        met_tokens=met_tokens,
        seconds=seconds,
        percentiles={
            figure: Percentiles(*getattr(measured, figure))
            for figure in FIGURES
            if seen and getattr(measured, figure) is not None
        },
        currency=sums.currency if is_one else None,
        charge=sums.charge if is_one else None,
    )
