"""Usage by day as two charts: the spend, and the tokens by kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from admin_ui.axes import Axis, count_axis, money_axis
from admin_ui.chart import NARROW, WIDE, DayBar, draw, highest_of
from admin_ui.control_records import Usage, UsageCounts
from admin_ui.date_range import DateRange
from admin_ui.drawing import Chart
from admin_ui.formatting import count_text, currency_unit, money_text

TOKEN_SERIES = ("Input, not cached", "Input, cached", "Output")
_NOTHING = UsageCounts(
    requests=0, input_tokens=0, cached_input_tokens=0, output_tokens=0, charge=Decimal(0)
)


@dataclass(frozen=True)
class DailyRow:
    """One day of the range; days without requests have their zeros too."""

    day: date
    counts: UsageCounts


def daily_rows(usage: Usage, days: DateRange) -> list[DailyRow]:
    """Return every day of the range, oldest first, filled up where the report has no row."""
    by_day = {row.group[:10]: row for row in usage.data if row.group is not None}
    return [DailyRow(day, by_day.get(day.isoformat(), _NOTHING)) for day in days.days]


def spend_chart(rows: Sequence[DailyRow], currency: str | None) -> Chart:
    """Return the chart of charges by day."""
    bars = []
    for row in rows:
        charge = row.counts.charge
        amount = "no charge" if charge is None else str(money_text(charge, currency))
        tooltip = f"{row.day.isoformat()}: {amount}, {_requests(row.counts.requests)}"
        bars.append(DayBar(row.day, (max(charge or Decimal(0), Decimal(0)),), tooltip))
    axis = money_axis(highest_of(bars), currency_unit(currency))
    return _chart(bars, axis, "Spend by day", highest=_highest_spend(rows, currency))


def tokens_chart(rows: Sequence[DailyRow]) -> Chart:
    """Return the chart of tokens by day.

    Cached input is part of input: the parts drawn are input without it, it, and output, so that a
    pile is as high as the tokens were.
    """
    bars = [DayBar(row.day, _token_parts(row.counts), _tokens_tooltip(row)) for row in rows]
    highest = highest_of(bars)
    return _chart(bars, count_axis(highest), "Tokens by day", highest=f"{highest:,f} tokens")


def _chart(bars: Sequence[DayBar], axis: Axis, title: str, *, highest: str) -> Chart:
    is_empty = highest_of(bars) == 0
    span = f"{bars[0].day.isoformat()} to {bars[-1].day.isoformat()}, UTC"
    summary = f"{title}, {span}. " + ("None." if is_empty else f"Highest day: {highest}.")
    return Chart(draw(bars, axis, WIDE), draw(bars, axis, NARROW), summary, is_empty)


def _highest_spend(rows: Sequence[DailyRow], currency: str | None) -> str:
    highest = max((row.counts.charge or Decimal(0) for row in rows), default=Decimal(0))
    return str(money_text(highest, currency))


def _token_parts(counts: UsageCounts) -> tuple[Decimal, ...]:
    whole, cached = counts.input_tokens or 0, counts.cached_input_tokens or 0
    return Decimal(max(whole - cached, 0)), Decimal(cached), Decimal(counts.output_tokens or 0)


def _tokens_tooltip(row: DailyRow) -> str:
    counts = row.counts
    return (
        f"{row.day.isoformat()}: {count_text(counts.input_tokens)} input "
        f"({count_text(counts.cached_input_tokens)} cached), "
        f"{count_text(counts.output_tokens)} output"
    )


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count:,} requests"
