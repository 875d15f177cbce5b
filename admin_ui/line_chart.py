"""Line charts: from figures to coordinates. The SVG itself is a template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from admin_ui.axes import Axis
from admin_ui.drawing import (
    LABEL_LETTER_WIDTH,
    Chart,
    Drawing,
    Frame,
    Label,
    PlacedLimit,
    PlacedLine,
    PlacedMark,
    fit_labels,
    label_y,
    place_y,
    round_place,
)

WIDE = Frame(width=620, height=260, left=62, right=14, top=22, bottom=30)
FULL = Frame(width=1280, height=250, left=62, right=14, top=22, bottom=30, most_labels=16)
NARROW = Frame(width=340, height=240, left=56, right=10, top=22, bottom=30, most_labels=4)
Point = tuple[Decimal, Decimal]


@dataclass(frozen=True)
class Line:
    """Points from left to right; ``series`` is its number in the legend, and its colour."""

    series: int
    points: tuple[Point, ...]
    is_area: bool = False


@dataclass(frozen=True)
class Mark:
    """A point that is named: a dot with a tooltip."""

    series: int
    at: Point
    tooltip: str


@dataclass(frozen=True)
class Limit:
    """A dashed line across the plot at one value of x or of y, with its name."""

    text: str
    x: Decimal | None = None
    y: Decimal | None = None


@dataclass(frozen=True)
class Plot:
    """What is drawn, in figures; ``x_labels`` are the texts along the horizontal axis."""

    lines: tuple[Line, ...]
    x_top: Decimal
    y_axis: Axis
    x_labels: tuple[tuple[Decimal, str], ...]
    marks: tuple[Mark, ...] = ()
    limits: tuple[Limit, ...] = ()


def draw_both(plot: Plot, summary: str, *, wide: Frame = WIDE) -> Chart:
    """Return the chart for wide screens and for telephones."""
    return Chart(draw_lines(plot, wide), draw_lines(plot, NARROW), summary)


def draw_lines(plot: Plot, frame: Frame) -> Drawing:
    """Place everything; long axis labels widen the left margin, crowded ones below are left out."""
    frame = fit_labels(frame, plot.y_axis)
    place = _Place(frame, plot.x_top, plot.y_axis)
    return Drawing(
        frame=frame,
        lines=tuple(
            PlacedLine(line.series, place.path(line), line.is_area)
            for line in plot.lines
            if line.points
        ),
        marks=tuple(
            PlacedMark(mark.series, place.x(mark.at[0]), place.y(mark.at[1]), mark.tooltip)
            for mark in plot.marks
        ),
        limits=tuple(place.limit(limit) for limit in plot.limits),
        y_labels=label_y(plot.y_axis, frame),
        x_labels=_thin_labels(plot.x_labels, place, frame),
    )


@dataclass(frozen=True)
class _Place:
    """From figures to the drawing's units; what is beyond the axes is drawn on their ends."""

    frame: Frame
    x_top: Decimal
    y_axis: Axis

    def x(self, value: Decimal) -> Decimal:
        share = min(max(value / self.x_top, Decimal(0)), Decimal(1))
        return round_place(self.frame.left + share * self.frame.plot_width)

    def y(self, value: Decimal) -> Decimal:
        return place_y(value, self.y_axis, self.frame)

    def path(self, line: Line) -> str:
        places = [(self.x(x), self.y(y)) for x, y in line.points]
        path = "M" + " L".join(f"{x},{y}" for x, y in places)
        if line.is_area:
            path += f" L{places[-1][0]},{self.frame.base_y} L{places[0][0]},{self.frame.base_y} Z"
        return path

    def limit(self, limit: Limit) -> PlacedLimit:
        frame = self.frame
        if limit.x is not None:
            x = self.x(limit.x)
            is_right = x > frame.left + frame.plot_width / 2
            label = Label(
                x + (-5 if is_right else 5),
                Decimal(frame.top - 8),
                limit.text,
                "end" if is_right else "start",
            )
            return PlacedLimit(f"M{x},{frame.top - 14} V{frame.base_y}", label)
        y = self.y(limit.y or Decimal(0))
        label = Label(Decimal(frame.width - frame.right), y - 5, limit.text, "end")
        return PlacedLimit(f"M{frame.left},{y} H{frame.width - frame.right}", label)


def _thin_labels(
    labels: Sequence[tuple[Decimal, str]], place: _Place, frame: Frame
) -> tuple[Label, ...]:
    every = max(-(-len(labels) // frame.most_labels), 1)
    y = Decimal(frame.height - 10)
    placed = []
    for value, text in labels[::every]:
        x = place.x(value)
        half = Decimal(len(text) * LABEL_LETTER_WIDTH) / 2
        is_at_end = x + half > frame.width
        anchor = "end" if is_at_end else "middle"
        placed.append(Label(Decimal(frame.width - 2) if is_at_end else x, y, text, anchor))
    return tuple(placed)
