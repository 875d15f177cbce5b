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
from types import SimpleNamespace
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from billing.costing.wide_decimal import divide
from billing.usage.report import UsageFilter, filter_usage

MOST_EVENTS = 200_000  # read for one report; of so many a p99 is that of 98.95 to 99.05 %
FIGURES = ("ttft_ms", "tpot_ms", "e2e_ms")
_HOUR = timedelta(hours=1)
_OF_STREAMS = frozenset(("ttft_ms", "tpot_ms"))  # times that a whole reply does not have


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
    """One group. ``requests``, ``unpriced_requests`` and ``charge`` are exact; the rest is of the
    ``measured_requests``.

    Judged are all that did not end by the client's doing (rejected, client closed), and that the
    limits can judge: where one is of TTFT or TPOT, a completed reply that was not streamed has
    neither, and is counted in ``unjudged_requests`` instead. Met is what completed, within each limit
    of a time that it has: a streamed reply of one token has no TPOT. ``met_requests``,
    ``priced_met_requests``, ``met_tokens`` (output) and ``unjudged_charge`` are put up to all
    requests where a sample was read.
    """

    group: str
    label: str
    requests: int
    measured_requests: int
    completed_requests: int
    judged_requests: int
    unjudged_requests: int
    met_requests: int
    priced_met_requests: int  # of these, those that a price was found for
    met_share: Decimal | None  # of the judged
    met_tokens: int
    seconds: int  # that the group's requests arrived in
    percentiles: Mapping[str, Percentiles]  # by figure; without those that no request has
    currency: str | None  # None: none, or several
    charge: Decimal | None  # of all, met or not; None, too, where no request has a price
    unjudged_charge: Decimal  # its part of requests that the limits cannot judge
    unpriced_requests: int


@dataclass(frozen=True, slots=True)
class ServingReport:
    """Rows by group, and all together."""

    rows: tuple[ServingRow, ...]
    total: ServingRow


_NOTHING = ServingRow(
    group="",
    label="",
    requests=0,
    measured_requests=0,
    completed_requests=0,
    judged_requests=0,
    unjudged_requests=0,
    met_requests=0,
    priced_met_requests=0,
    met_share=None,
    met_tokens=0,
    seconds=0,
    percentiles={},
    currency=None,
    charge=None,
    unjudged_charge=Decimal(0),
    unpriced_requests=0,
)
# Of a group that the sample has no event of.
_UNMEASURED = SimpleNamespace(
    measured=0,
    completed=0,
    judged=0,
    unjudged=0,
    unjudged_charge=Decimal(0),
    met=0,
    priced_met=0,
    met_tokens=0,
    **dict.fromkeys(FIGURES),
)
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
    max(r.currency) FILTER (WHERE r.currency <> 'XXX') AS currency, sum(r.charge) AS charge,
    sum(r.unpriced_requests)::bigint AS unpriced
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
    count(*) FILTER (WHERE {is_unjudged}) AS unjudged,
    coalesce(sum(r.charge) FILTER (WHERE {is_unjudged}), 0) AS unjudged_charge,
    count(*) FILTER (WHERE {is_met}) AS met,
    count(*) FILTER (WHERE {is_met} AND r.charge IS NOT NULL) AS priced_met,
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
    return ServingReport(tuple(rows), total[0] if total else _NOTHING)


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
    is_unjudged = "false"
    if not serving_filter.limits.keys().isdisjoint(_OF_STREAMS):
        is_unjudged = "(r.status = 'completed' AND r.ttft_ms IS NULL)"
    is_met = ["r.status = 'completed'", f"NOT {is_unjudged}"]
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
        is_unjudged=is_unjudged,
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
    if measured is None or not measured.measured:
        measured, factor = _UNMEASURED, divide(1, 1)
    else:
        factor = divide(max(sums.requests, measured.measured), measured.measured)
    judged = measured.judged - measured.unjudged
    is_one = sums.currencies == 1
    has_charge = is_one and (sums.charge > 0 or not sums.unpriced)
    return ServingRow(
        group=sums.group_key,
        label=label,
        requests=sums.requests,
        measured_requests=measured.measured,
        completed_requests=measured.completed,
        judged_requests=judged,
        unjudged_requests=measured.unjudged,
        met_requests=round(factor * measured.met),
        priced_met_requests=round(factor * measured.priced_met),
        met_share=divide(measured.met, judged) if judged else None,
        met_tokens=round(factor * measured.met_tokens),
        seconds=seconds,
        percentiles={
            figure: Percentiles(*getattr(measured, figure))
            for figure in FIGURES
            if getattr(measured, figure) is not None
        },
        currency=sums.currency if is_one else None,
        charge=sums.charge if has_charge else None,
        unjudged_charge=factor * measured.unjudged_charge,
        unpriced_requests=sums.unpriced,
    )
