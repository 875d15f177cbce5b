"""Bar charts by day: from figures to coordinates. The SVG itself is a template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from admin_ui.axes import Axis
from admin_ui.drawing import (
    Column,
    Drawing,
    Frame,
    Label,
    Rectangle,
    fit_labels,
    label_y,
    round_place,
)

_LEAST_BAR = Decimal("1.5")  # a day with anything at all must be seen
_GAP_SHARE = Decimal("0.28")  # of a day's width, left free between bars
# One drawing for wide screens and one for telephones: scaled down, a wide one would be unreadable.
WIDE = Frame(width=620, height=240, left=62)
NARROW = Frame(width=340, height=220, left=56, most_labels=4)


@dataclass(frozen=True)
class DayBar:
    """One day: its parts from the bottom up, none negative, and the tooltip's sentence."""

    day: date
    parts: tuple[Decimal, ...]
    tooltip: str


def draw(bars: Sequence[DayBar], axis: Axis, frame: Frame) -> Drawing:
    """Place the bars of consecutive days, oldest first; long axis labels widen the left margin."""
    frame = fit_labels(frame, axis)
    count = max(len(bars), 1)
    slot = Decimal(frame.plot_width) / count
    columns = tuple(_column(index, bar, axis, frame, slot) for index, bar in enumerate(bars))
    return Drawing(
        frame=frame,
        columns=columns,
        y_labels=label_y(axis, frame),
        x_labels=_day_labels(bars, frame, slot),
    )


def _column(index: int, bar: DayBar, axis: Axis, frame: Frame, slot: Decimal) -> Column:
    left = frame.left + slot * index
    gap = slot * _GAP_SHARE
    bar_width = min(slot - gap, Decimal(40))
    x = left + (slot - bar_width) / 2
    floor = Decimal(frame.base_y)
    rectangles: list[Rectangle] = []
    for series, part in enumerate(bar.parts):
        if part <= 0:
            continue
        height = max(part / axis.top * frame.plot_height, _LEAST_BAR)
        # Parts lifted to the least height must not push the pile out of the frame.
        height = min(height, floor - frame.top)
        floor -= height
        rectangles.append(
            Rectangle(
                round_place(x),
                round_place(floor),
                round_place(bar_width),
                round_place(height),
                series,
            )
        )
    return Column(round_place(left), round_place(slot), bar.tooltip, tuple(rectangles))


def _day_labels(bars: Sequence[DayBar], frame: Frame, slot: Decimal) -> tuple[Label, ...]:
    every = max(-(-len(bars) // frame.most_labels), 1)
    y = Decimal(frame.height - 7)
    labels = []
    # Counted from the newest day, so that today is always named.
    for index in range(len(bars) - 1, -1, -every):
        x = frame.left + slot * index + slot / 2
        text = f"{bars[index].day:%d %b}".lstrip("0")
        is_last = index == len(bars) - 1 and slot < 36
        if is_last:
            labels.append(Label(Decimal(frame.width - frame.right), y, text, "end"))
        else:
            labels.append(Label(round_place(x), y, text))
    return tuple(reversed(labels))


def highest_of(bars: Sequence[DayBar]) -> Decimal:
    """Return the tallest bar's height in figures, 0 when there is none."""
    return max((sum(bar.parts, Decimal(0)) for bar in bars), default=Decimal(0))
