"""How requests were served, hour by hour: times, goodput, and what a good request was charged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, DecimalException
from itertools import groupby

from admin_ui.axes import Axis, duration_axis, money_axis, rate_axis
from admin_ui.cost_records import ServingRow
from admin_ui.drawing import Chart
from admin_ui.formatting import currency_unit, day_text, duration_text, rounded_money, small_rate
from admin_ui.line_chart import Limit, Line, Plot, Point, draw_both

PERCENTILES = ("p50", "p95", "p99")
REQUESTS = ("arrived", "good")
_TIMES = (("ttft_ms", "TTFT"), ("tpot_ms", "TPOT"), ("e2e_ms", "E2E"))
_HOUR = timedelta(hours=1)
_SECONDS_PER_HOUR = 3600
_MOST_POINTS = 400
_LEAST_DAYS = 2  # below, hours are written along the axis
Values = list[Decimal | None]


@dataclass(frozen=True)
class ServingChart:
    """A chart with its heading, its legend, and how it is to be read."""

    name: str
    title: str
    chart: Chart
    series: tuple[str, ...] = ()
    unit: str = ""
    note: str = ""


@dataclass(frozen=True)
class _Hours:
    """The hours from the first request's to the last one's, those without requests too."""

    first_at: datetime
    rows: tuple[ServingRow | None, ...]

    @property
    def every(self) -> int:
        """How many hours one point stands for."""
        return -(-len(self.rows) // _MOST_POINTS)

    def pick(self, read: Callable[[ServingRow], Decimal | None]) -> Values:
        """Return one figure hour by hour; where a point stands for several, their highest."""
        found: Values = [None if row is None else read(row) for row in self.rows]
        groups = (found[at : at + self.every] for at in range(0, len(found), self.every))
        return [max((one for one in group if one is not None), default=None) for group in groups]

    def list_labels(self) -> tuple[tuple[Decimal, str], ...]:
        """Return days, or of a short time hours, where they begin."""
        times = [self.first_at + index * _HOUR for index in range(len(self.rows))]
        if len(times) < _LEAST_DAYS * 24:
            labels = [(at, f"{at:%H:%M}") for at in times]
        else:
            labels = [(at, day_text(at)) for at in times if at.hour == 0]
        return tuple(
            (Decimal((at - self.first_at) // _HOUR) / self.every, text) for at, text in labels
        )


def serving_charts(
    rows: Sequence[ServingRow], targets: Mapping[str, str]
) -> tuple[ServingChart, ...]:
    """Return the charts of rows by hour; none of fewer than two hours.

    ``targets`` are the limits by figure, as text in milliseconds: each is a dashed line.
    """
    hours = _fill(rows)
    if hours is None:
        return ()
    every = "" if hours.every == 1 else f"Of every {hours.every} hours the highest."
    charts = []
    for figure, name in _TIMES:
        chart = _times_chart(hours, figure, name, targets.get(figure))
        if chart is not None:
            charts.append(ServingChart(figure, name, chart, PERCENTILES, note=every))
    charts.append(
        ServingChart("goodput", "Requests a second", _rate_chart(hours), REQUESTS, note=every)
    )
    charge = _charge_chart(hours)
    if charge is not None:
        title = "Charge a good request"
        charts.append(ServingChart("charge", title, charge, unit="all charges over what was good"))
    return tuple(charts)


def _fill(rows: Sequence[ServingRow]) -> _Hours | None:
    by_hour = {datetime.fromisoformat(row.group).astimezone(UTC): row for row in rows}
    if len(by_hour) < 2:
        return None
    first, last = min(by_hour), max(by_hour)
    count = (last - first) // _HOUR + 1
    return _Hours(first, tuple(by_hour.get(first + index * _HOUR) for index in range(count)))


def _times_chart(hours: _Hours, figure: str, name: str, target: str | None) -> Chart | None:
    found = [
        hours.pick(lambda row, one=percentile: getattr(getattr(row, figure), one))  # type: ignore[misc]
        for percentile in PERCENTILES
    ]
    highest = _highest(found)
    if highest is None:
        return None
    limit = _read_limit(target)
    axis = duration_axis(highest if limit is None else max(highest, limit))
    limits = () if limit is None else (Limit(f"at most {duration_text(float(limit))}", y=limit),)
    slowest = _highest(found[-1:]) or highest
    summary = f"{name} by hour. Slowest hour's p99: {duration_text(float(slowest))}."
    return _draw(hours, enumerate(found), axis, summary, limits)


def _rate_chart(hours: _Hours) -> Chart:
    arrived = hours.pick(lambda row: Decimal(row.requests) / _SECONDS_PER_HOUR)
    good = hours.pick(lambda row: row.goodput_requests_per_second)
    highest = _highest([arrived, good]) or Decimal(0)
    summary = f"Requests a second by hour. Busiest hour: {small_rate(highest)}."
    nothing = Decimal(0)
    known = [[nothing if one is None else one for one in values] for values in (arrived, good)]
    return _draw(hours, enumerate(known), rate_axis(highest), summary)


def _charge_chart(hours: _Hours) -> Chart | None:
    currencies = {row.currency for row in hours.rows if row is not None and row.currency}
    charges = hours.pick(lambda row: row.charge_per_met_request)
    highest = _highest([charges])
    if len(currencies) != 1 or highest is None:
        return None
    currency = currencies.pop()
    axis = money_axis(highest, currency_unit(currency))
    dearest = rounded_money(highest, currency, 6)
    return _draw(
        hours, [(2, charges)], axis, f"Charge a good request by hour. Dearest hour: {dearest}."
    )


def _draw(
    hours: _Hours,
    series: Iterable[tuple[int, Sequence[Decimal | None]]],
    axis: Axis,
    summary: str,
    limits: tuple[Limit, ...] = (),
) -> Chart:
    lines = tuple(
        Line(number, points) for number, values in series for points in _split_runs(values)
    )
    points = -(-len(hours.rows) // hours.every)
    plot = Plot(
        lines=lines,
        x_top=Decimal(max(points - 1, 1)),
        y_axis=axis,
        x_labels=hours.list_labels(),
        limits=limits,
    )
    return draw_both(plot, summary)


def _split_runs(values: Sequence[Decimal | None]) -> Iterator[tuple[Point, ...]]:
    """Yield the points between gaps; one alone twice, so that a round end of its line is seen."""
    placed = [(Decimal(index), value) for index, value in enumerate(values)]
    for is_known, group in groupby(placed, key=lambda point: point[1] is not None):
        run = [(x, value) for x, value in group if value is not None]
        if is_known:
            yield tuple(run if len(run) > 1 else run * 2)


def _highest(series: Iterable[Sequence[Decimal | None]]) -> Decimal | None:
    return max((one for values in series for one in values if one is not None), default=None)


def _read_limit(target: str | None) -> Decimal | None:
    try:
        return None if target is None else Decimal(target)
    except DecimalException:
        return None
