"""Bar charts by day: from figures to coordinates. The SVG itself is a template.

All scaling is in :class:`~decimal.Decimal`; a coordinate is rounded to a hundredth of a unit, a
figure never is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import ROUND_CEILING, Decimal

_INTERVALS = 4
_STEPS = (Decimal(1), Decimal(2), Decimal("2.5"), Decimal(5), Decimal(10))
_COUNT_STEPS = (Decimal(1), Decimal(2), Decimal(5), Decimal(10))
_HUNDREDTH = Decimal("0.01")
_LEAST_BAR = Decimal("1.5")  # a day with anything at all must be seen
_LABEL_LETTER_WIDTH = 7  # at the style sheet's 11 px, for the widest of usual fonts
_GAP_SHARE = Decimal("0.28")  # of a day's width, left free between bars


@dataclass(frozen=True)
class Frame:
    """The drawing's size and margins, in units of its view box."""

    width: int
    height: int
    left: int
    right: int = 4
    top: int = 12
    bottom: int = 24
    most_labels: int = 8

    @property
    def plot_width(self) -> int:
        """Return the width between the margins."""
        return self.width - self.left - self.right

    @property
    def plot_height(self) -> int:
        """Return the height between the margins."""
        return self.height - self.top - self.bottom

    @property
    def base_y(self) -> int:
        """Return where the bars stand."""
        return self.height - self.bottom


# One drawing for wide screens and one for telephones: scaled down, a wide one would be unreadable.
WIDE = Frame(width=620, height=240, left=62)
NARROW = Frame(width=340, height=220, left=56, most_labels=4)


@dataclass(frozen=True)
class Axis:
    """Round values from 0 upwards, the last at or above the highest bar."""

    ticks: tuple[Decimal, ...]
    labels: tuple[str, ...]

    @property
    def top(self) -> Decimal:
        """Return the highest tick, always above 0."""
        return self.ticks[-1]


@dataclass(frozen=True)
class DayBar:
    """One day: its parts from the bottom up, none negative, and the tooltip's sentence."""

    day: date
    parts: tuple[Decimal, ...]
    tooltip: str


@dataclass(frozen=True)
class Rectangle:
    """A part of a bar; ``series`` is its index among the parts."""

    x: Decimal
    y: Decimal
    width: Decimal
    height: Decimal
    series: int


@dataclass(frozen=True)
class Column:
    """One day's place in the drawing: the whole height for the pointer, and what is drawn in it."""

    x: Decimal
    width: Decimal
    tooltip: str
    rectangles: tuple[Rectangle, ...]


@dataclass(frozen=True)
class Label:
    """Text at a place on an axis."""

    x: Decimal
    y: Decimal
    text: str
    anchor: str = "middle"


@dataclass(frozen=True)
class Drawing:
    """Everything the template needs for one SVG."""

    frame: Frame
    columns: tuple[Column, ...]
    y_labels: tuple[Label, ...]
    x_labels: tuple[Label, ...]


def money_axis(highest: Decimal, unit: str) -> Axis:
    """Return the axis for amounts up to ``highest``, labelled with ``unit`` before the number."""
    ticks = _ticks(highest, _STEPS)
    decimals = _decimals(ticks[1])
    decimals = 2 if decimals == 1 else decimals
    return Axis(ticks, tuple(f"{unit}{tick:,.{decimals}f}" for tick in ticks))


def count_axis(highest: Decimal) -> Axis:
    """Return the axis for counts up to ``highest``: whole numbers, written short (``2.5k``)."""
    ticks = _ticks(max(highest, Decimal(_INTERVALS)), _COUNT_STEPS)
    return Axis(ticks, tuple(_short_count(tick) for tick in ticks))


def draw(bars: Sequence[DayBar], axis: Axis, frame: Frame) -> Drawing:
    """Place the bars of consecutive days, oldest first; long axis labels widen the left margin."""
    longest = max(len(label) for label in axis.labels)
    frame = replace(frame, left=max(frame.left, longest * _LABEL_LETTER_WIDTH + 14))
    count = max(len(bars), 1)
    slot = Decimal(frame.plot_width) / count
    columns = tuple(_column(index, bar, axis, frame, slot) for index, bar in enumerate(bars))
    return Drawing(
        frame=frame,
        columns=columns,
        y_labels=tuple(
            Label(Decimal(frame.left - 8), _y(tick, axis, frame), text, "end")
            for tick, text in zip(axis.ticks, axis.labels, strict=True)
        ),
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
        rectangles.append(Rectangle(_2(x), _2(floor), _2(bar_width), _2(height), series))
    return Column(_2(left), _2(slot), bar.tooltip, tuple(rectangles))


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
            labels.append(Label(_2(x), y, text))
    return tuple(reversed(labels))


def _y(value: Decimal, axis: Axis, frame: Frame) -> Decimal:
    return _2(frame.base_y - value / axis.top * frame.plot_height)


def _ticks(highest: Decimal, steps: Sequence[Decimal]) -> tuple[Decimal, ...]:
    if highest <= 0:
        highest = Decimal(1)
    unit = Decimal(1).scaleb((highest / _INTERVALS).adjusted())
    step = next(factor * unit for factor in steps if factor * unit * _INTERVALS >= highest)
    intervals = int((highest / step).to_integral_value(ROUND_CEILING))
    return tuple(step * index for index in range(intervals + 1))


def _decimals(value: Decimal) -> int:
    """Return how many decimals ``value`` needs."""
    return len(f"{value.normalize():f}".partition(".")[2])


def _short_count(count: Decimal) -> str:
    for size, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{(count / size).normalize():f}{letter}"
    return f"{count:f}"


def _2(value: Decimal) -> Decimal:
    return value.quantize(_HUNDREDTH)


def highest_of(bars: Sequence[DayBar]) -> Decimal:
    """Return the tallest bar's height in figures, 0 when there is none."""
    return max((sum(bar.parts, Decimal(0)) for bar in bars), default=Decimal(0))
