"""Charts of the admin pages: scaling, axes, what a bar may not do."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin_ui.axes import Axis, count_axis, duration_axis, money_axis, rate_axis
from admin_ui.chart import NARROW, WIDE, DayBar, draw
from admin_ui.control_records import Usage, UsageCounts, UsageRow
from admin_ui.cost_records import Percentiles, ServingRow
from admin_ui.daily import daily_rows, spend_chart, tokens_chart
from admin_ui.date_range import DateRange, last_days
from admin_ui.drawing import Frame
from admin_ui.serving_charts import serving_charts

TODAY = date(2026, 11, 29)
HEIGHTS = st.decimals(min_value=0, max_value=10**12, places=12)
COUNTS = st.integers(min_value=0, max_value=10**12)
FRAMES = st.sampled_from([WIDE, NARROW])


def bars_of(values: list[tuple[Decimal, ...]]) -> list[DayBar]:
    return [DayBar(TODAY + timedelta(days=index), parts, "") for index, parts in enumerate(values)]


@given(HEIGHTS)
def test_money_axis_begins_at_zero_and_covers_the_highest(highest: Decimal) -> None:
    axis = money_axis(highest, "$")
    assert axis.ticks[0] == 0
    assert axis.top >= highest
    assert 2 <= len(axis.ticks) <= 5
    steps = {after - before for before, after in pairwise(axis.ticks)}
    assert len(steps) == 1
    assert highest == 0 or axis.top - steps.pop() < highest


@given(HEIGHTS)
def test_money_labels_say_their_tick_exactly(highest: Decimal) -> None:
    axis = money_axis(highest, "$")
    for tick, label in zip(axis.ticks, axis.labels, strict=True):
        assert Decimal(label.removeprefix("$").replace(",", "")) == tick


@given(COUNTS)
def test_count_axis_has_whole_ticks_and_exact_labels(highest: int) -> None:
    axis = count_axis(Decimal(highest))
    sizes = {"k": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
    assert axis.top >= highest
    for tick, label in zip(axis.ticks, axis.labels, strict=True):
        assert tick == tick.to_integral_value()
        assert Decimal(label.rstrip("kMBT")) * sizes.get(label[-1], 1) == tick


@given(st.decimals(min_value=0, max_value=10**9, places=6))
def test_times_and_rates_are_written_exactly(highest: Decimal) -> None:
    units = {"": Decimal(1), " ms": Decimal(1), " s": Decimal(1000)}
    for axis in (rate_axis(highest), duration_axis(highest)):
        assert axis.top >= highest
        for tick, label in zip(axis.ticks, axis.labels, strict=True):
            number = label.rstrip(" ms")
            assert Decimal(number.replace(",", "")) * units[label.removeprefix(number)] == tick


@given(st.lists(st.tuples(HEIGHTS, HEIGHTS, HEIGHTS), min_size=1, max_size=366), FRAMES)
def test_bars_stay_in_the_frame_and_do_not_overlap(
    values: list[tuple[Decimal, ...]], frame: Frame
) -> None:
    bars = bars_of(values)
    axis = money_axis(max(sum(parts, Decimal(0)) for parts in values), "$")
    drawing = draw(bars, axis, frame)
    tolerance = Decimal("0.03")
    right_before = Decimal(0)
    for bar, column in zip(bars, drawing.columns, strict=True):
        floor = Decimal(frame.base_y)
        assert len(column.rectangles) == sum(part > 0 for part in bar.parts)
        for part in column.rectangles:
            assert part.y >= frame.top - tolerance
            assert abs(part.y + part.height - floor) <= tolerance
            assert drawing.frame.left <= part.x
            assert part.x + part.width <= frame.width - frame.right + tolerance
            assert part.x >= right_before - tolerance
            floor = part.y
        if column.rectangles:
            right_before = column.rectangles[0].x + column.rectangles[0].width
    for label in drawing.x_labels:
        assert 0 < label.x <= frame.width
    assert len(drawing.x_labels) <= frame.most_labels


def test_bar_heights_are_in_proportion() -> None:
    axis = Axis((Decimal(0), Decimal(4)), ("0", "4"))
    drawing = draw(bars_of([(Decimal(1),), (Decimal(4),), (Decimal(0),)]), axis, WIDE)
    quarter, whole, nothing = drawing.columns
    assert whole.rectangles[0].height == WIDE.plot_height
    assert quarter.rectangles[0].height * 4 == WIDE.plot_height
    assert nothing.rectangles == ()


def test_the_smallest_charge_is_seen_beside_the_largest() -> None:
    bars = bars_of([(Decimal("1E-12"),), (Decimal(10**9),)])
    drawing = draw(bars, money_axis(Decimal(10**9), "$"), NARROW)
    assert drawing.columns[0].rectangles[0].height >= 1


@pytest.mark.parametrize("count", [7, 30, 90, 366])
def test_today_is_always_named(count: int) -> None:
    chosen = last_days(count, TODAY)
    bars = [DayBar(day, (Decimal(1),), "") for day in chosen.days]
    for frame in (WIDE, NARROW):
        drawing = draw(bars, money_axis(Decimal(1), "$"), frame)
        assert drawing.x_labels[-1].text == "29 Nov"


@pytest.mark.parametrize("highest", ["149000", "0.00000000031", "1E9"])
def test_long_axis_labels_get_the_room_they_need(highest: str) -> None:
    axis = money_axis(Decimal(highest), "$")
    drawing = draw(bars_of([(Decimal(highest),)] * 7), axis, NARROW)
    for label in drawing.y_labels:
        assert label.x - 7 * len(label.text) >= 0


def usage_of(*rows: UsageRow) -> Usage:
    return Usage(currency="USD", data=list(rows), total=UsageCounts(requests=0))


def test_days_without_requests_are_filled_with_zeros() -> None:
    row = UsageRow(group="2026-11-28", requests=2, charge=Decimal("0.5"))
    rows = daily_rows(usage_of(row), DateRange(date(2026, 11, 27), TODAY))
    assert [(r.day.day, r.counts.requests) for r in rows] == [(27, 0), (28, 2), (29, 0)]
    chart = spend_chart(rows, "USD")
    assert [len(column.rectangles) for column in chart.wide.columns] == [0, 1, 0]
    assert chart.wide.columns[1].tooltip == "2026-11-28: $0.50, 2 requests"
    assert "Highest day: $0.50" in chart.summary


def test_a_report_row_with_a_time_is_still_its_day() -> None:
    row = UsageRow(group="2026-11-29T00:00:00+00:00", requests=1, charge=Decimal(1))
    assert daily_rows(usage_of(row), last_days(7, TODAY))[-1].counts is row


def test_cached_input_is_not_counted_twice() -> None:
    row = UsageRow(
        group="2026-11-29",
        requests=1,
        input_tokens=1_000_000,
        cached_input_tokens=983_000,
        output_tokens=50_000,
    )
    chart = tokens_chart(daily_rows(usage_of(row), last_days(7, TODAY)))
    heights = [part.height for part in chart.wide.columns[-1].rectangles]
    top = count_axis(Decimal(1_050_000)).top
    assert abs(sum(heights) - Decimal(1_050_000) / top * WIDE.plot_height) < Decimal("0.1")
    assert chart.summary.endswith("Highest day: 1,050,000 tokens.")


def test_nothing_at_all_is_said() -> None:
    rows = daily_rows(usage_of(), last_days(7, TODAY))
    assert spend_chart(rows, "USD").is_empty
    assert tokens_chart(rows).summary.endswith("None.")


def test_ranges_tile_the_time_without_gap_or_overlap() -> None:
    whole = last_days(30, TODAY)
    singles = [DateRange(day, day) for day in whole.days]
    assert singles[0].from_at == whole.from_at == datetime(2026, 10, 31, tzinfo=UTC)
    assert singles[-1].to_at == whole.to_at == datetime(2026, 11, 30, tzinfo=UTC)
    for before, after in pairwise(singles):
        assert before.to_at == after.from_at


def served(hour: int, milliseconds: str | None, *, charge: str | None = "0.5") -> ServingRow:
    times = Percentiles(p50=None if milliseconds is None else Decimal(milliseconds))
    return ServingRow(
        group=f"{datetime(2026, 11, 1, tzinfo=UTC) + timedelta(hours=hour):%Y-%m-%dT%H:00:00Z}",
        label="",
        requests=3600,
        measured_requests=1,
        completed_requests=1,
        met_requests=1,
        goodput_requests_per_second=Decimal("0.5"),
        goodput_tokens_per_second=Decimal(1),
        ttft_ms=times,
        tpot_ms=Percentiles(),
        e2e_ms=times,
        currency="EUR",
        charge_per_met_request=None if charge is None else Decimal(charge),
    )


def test_hours_without_requests_are_gaps_of_times_and_zeros_of_rates() -> None:
    rows = [served(0, "100"), served(1, "200"), served(3, "100"), served(5, None, charge=None)]
    charts = {one.name: one.chart for one in serving_charts(rows, {"ttft_ms": "1500"})}
    assert set(charts) == {"ttft_ms", "e2e_ms", "goodput", "charge"}  # nothing has a TPOT
    first, alone = charts["ttft_ms"].wide.lines
    assert first.path.count("L") == 1
    assert alone.path.removeprefix("M").split(" L")[0] == alone.path.split(" L")[1]  # a dot
    arrived, good = charts["goodput"].wide.lines
    assert arrived.path.count("L") == good.path.count("L") == 5
    [limit] = charts["ttft_ms"].wide.limits
    assert limit.label.text == "at most 1.50 s"
    assert charts["e2e_ms"].wide.limits == ()
    assert serving_charts(rows[:1], {}) == ()


def test_of_many_hours_the_slowest_are_drawn() -> None:
    rows = [served(hour, "9000" if hour == 1000 else "10") for hour in range(2232)]
    [ttft, *_] = serving_charts(rows, {})
    assert ttft.note == "Of every 6 hours the highest."
    points = [pair.split(",") for pair in ttft.chart.wide.lines[0].path[1:].split(" L")]
    assert len(points) == 372
    highest = min(Decimal(y) for _, y in points)
    assert highest < ttft.chart.wide.frame.base_y - ttft.chart.wide.frame.plot_height / 2
    assert ttft.chart.wide.x_labels[0].text == "1 Nov"
