"""The charts of a crossover report: cost over tokens a day, the load by hour, cost by replicas."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from admin_ui.axes import count_axis, money_axis
from admin_ui.cost_records import BusyHour, CrossoverSection, Fleet
from admin_ui.drawing import Chart
from admin_ui.formatting import currency_unit, day_text, money_text
from admin_ui.line_chart import FULL, Limit, Line, Mark, Plot, Point, draw_both

CHOICES = ("serverless", "dedicated", "hybrid")  # in the order of their colours
_MILLION = 10**6
_DAYS_PER_MONTH = 30
_MOST_POINTS = 800  # of the load by hour
_MOST_STEPS = 200
_MOST_FLEETS = 60


def crossing_chart(
    section: CrossoverSection, currency: str, max_utilization: Decimal
) -> Chart | None:
    """Return what a day costs at a steady load, by tokens a day; None without a capacity.

    Serverless is a line through 0; dedicated GPUs are steps, one more where those before are full
    (``max_utilization`` of their capacity); dots are what today's hours cost.
    """
    if section.load is None or section.comparison is None or not section.crossings:
        return None
    load, first = section.load, section.crossings[0]
    today = load.tokens_per_day
    axis = count_axis(max(today * Decimal("1.4"), first.crossing.tokens_per_day * Decimal("1.2")))
    widest = axis.top
    per_token = load.serverless_per_million / _MILLION
    serverless = Line(0, ((Decimal(0), Decimal(0)), (widest, widest * per_token)))
    dedicated = Line(1, _steps(section, widest, max_utilization))
    marks = tuple(
        Mark(
            CHOICES.index(choice.kind),
            (today, choice.per_month / _DAYS_PER_MONTH),
            f"{choice.kind}, over the recorded hours: "
            f"{_money(choice.per_month / _DAYS_PER_MONTH, currency)} a day",
        )
        for choice in section.comparison.choices
        if choice.per_month is not None
    )
    highest = max(y for _, y in [*serverless.points, *dedicated.points, *(m.at for m in marks)])
    crossing = first.crossing.tokens_per_day
    limits = [Limit("today", x=today)]
    if abs(crossing - today) > widest / 12:
        limits.append(Limit("crossing", x=crossing))
    plot = Plot(
        lines=(serverless, dedicated),
        x_top=widest,
        y_axis=money_axis(highest, currency_unit(currency)),
        x_labels=tuple(zip(axis.ticks, axis.labels, strict=True)),
        marks=marks,
        limits=tuple(limits),
    )
    summary = (
        f"Cost of a day by tokens a day. Today {today:,.0f} tokens a day; one replica crosses the "
        f"serverless price at {crossing:,.0f}."
    )
    return draw_both(plot, summary)


def load_chart(section: CrossoverSection) -> Chart | None:
    """Return the replicas that each hour keeps busy, and what the chosen base carries."""
    hours = [hour for hour in section.hours if hour.replicas is not None]
    if len(hours) < 2 or section.comparison is None:
        return None
    shown = _highest_of_each(hours, -(-len(hours) // _MOST_POINTS))
    highest = max(replicas for _, replicas in shown)
    best = section.comparison.best_choice
    limits = []
    if best.kind != "serverless" and best.replicas:
        name = "1 replica" if best.replicas == 1 else f"{best.replicas} replicas"
        limits.append(Limit(name, y=Decimal(best.replicas)))
    days = [
        (Decimal(index), day_text(hour.hour_at))
        for index, hour in enumerate(hours)
        if hour.hour_at.hour == 0
    ]
    plot = Plot(
        lines=(Line(2, tuple(shown), is_area=True),),
        x_top=Decimal(len(hours) - 1),
        y_axis=count_axis(max(highest, Decimal(best.replicas))),
        x_labels=tuple(days) or ((Decimal(0), day_text(hours[0].hour_at)),),
        limits=tuple(limits),
    )
    summary = f"Replicas kept busy, hour by hour. Busiest hour: {highest:.2f}."
    return draw_both(plot, summary, wide=FULL)


def fleet_chart(section: CrossoverSection, currency: str) -> Chart | None:
    """Return what a month costs by the number of replicas in the base; None with none to choose."""
    comparison = section.comparison
    if comparison is None or len(comparison.fleets) < 2:
        return None
    fleets = _thin(comparison.fleets, best=comparison.hybrid.replicas)
    points = tuple((Decimal(fleet.replicas), fleet.hybrid_per_month) for fleet in fleets)
    marks = [_choice_mark(comparison.hybrid.replicas, comparison.hybrid.per_month, 2, currency)]
    top = comparison.fleets[-1]
    marks.append(_choice_mark(top.replicas, comparison.dedicated.per_month, 1, currency))
    marks.append(_choice_mark(0, comparison.serverless.per_month, 0, currency))
    known = tuple(mark for mark in marks if mark is not None)
    highest = max(y for _, y in [*points, *(mark.at for mark in known)])
    axis = count_axis(Decimal(top.replicas))
    plot = Plot(
        lines=(Line(2, points),),
        x_top=max(axis.top, Decimal(1)),
        y_axis=money_axis(highest, currency_unit(currency)),
        x_labels=tuple(zip(axis.ticks, axis.labels, strict=True)),
        marks=known,
    )
    best = f"{comparison.hybrid.replicas} replicas are cheapest"
    return draw_both(plot, f"Cost of a month by replicas in the base of a hybrid; {best}.")


def _steps(
    section: CrossoverSection, widest: Decimal, max_utilization: Decimal
) -> tuple[Point, ...]:
    """Return the corners of the dedicated cost at a load that is the same in every hour."""
    first = section.crossings[0]
    standing = first.crossing.cost_per_day / (first.replicas + first.spare_replicas)
    spares = first.spare_replicas * standing
    per_replica = first.capacity_tokens_per_second * max_utilization * 86_400
    corners: list[Point] = []
    begin, count = Decimal(0), 1
    while begin < widest and count <= _MOST_STEPS:
        end = min(widest, count * per_replica)
        corners += [(begin, spares + count * standing), (end, spares + count * standing)]
        begin, count = end, count + 1
    return tuple(corners)


def _choice_mark(
    replicas: int, per_month: Decimal | None, series: int, currency: str
) -> Mark | None:
    if per_month is None:
        return None
    text = f"{CHOICES[series]}: {_money(per_month, currency)} a month"
    return Mark(series, (Decimal(replicas), per_month), text)


def _highest_of_each(hours: Sequence[BusyHour], every: int) -> list[Point]:
    """Return every hour, or of ``every`` hours the busiest, so that no peak is lost."""
    points: list[Point] = []
    for begin in range(0, len(hours), every):
        group = hours[begin : begin + every]
        points.append((Decimal(begin), max(hour.replicas or Decimal(0) for hour in group)))
    return points


def _thin(fleets: Sequence[Fleet], *, best: int) -> list[Fleet]:
    every = -(-len(fleets) // _MOST_FLEETS)
    last = len(fleets) - 1
    return [
        fleet
        for index, fleet in enumerate(fleets)
        if index % every == 0 or index == last or fleet.replicas == best
    ]


def _money(amount: Decimal, currency: str) -> str:
    return str(money_text(amount.quantize(Decimal("0.01")), currency))
