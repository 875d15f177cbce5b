"""A chart as its template takes it: one drawing for wide screens, one for telephones, in one shape
whether it has bars or lines.

All scaling is in :class:`~decimal.Decimal`; a coordinate is rounded to a hundredth of a unit, a
figure never is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

from admin_ui.axes import Axis

LABEL_LETTER_WIDTH = 7  # at the style sheet's 11 px, for the widest of usual fonts
_HUNDREDTH = Decimal("0.01")


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


@dataclass(frozen=True)
class Label:
    """Text at a place on an axis."""

    x: Decimal
    y: Decimal
    text: str
    anchor: str = "middle"


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
class PlacedLine:
    """A path of SVG."""

    series: int
    path: str
    is_area: bool


@dataclass(frozen=True)
class PlacedMark:
    """A dot."""

    series: int
    x: Decimal
    y: Decimal
    tooltip: str


@dataclass(frozen=True)
class PlacedLimit:
    """A straight line and where its name stands."""

    path: str
    label: Label


@dataclass(frozen=True)
class Drawing:
    """Everything the template needs for one SVG: axes, and bars or lines."""

    frame: Frame
    y_labels: tuple[Label, ...]
    x_labels: tuple[Label, ...]
    columns: tuple[Column, ...] = ()
    lines: tuple[PlacedLine, ...] = ()
    limits: tuple[PlacedLimit, ...] = ()
    marks: tuple[PlacedMark, ...] = ()


@dataclass(frozen=True)
class Chart:
    """One chart in both sizes, and a sentence that says what it shows."""

    wide: Drawing
    narrow: Drawing
    summary: str
    is_empty: bool = False


def fit_labels(frame: Frame, axis: Axis) -> Frame:
    """Return the frame with a left margin that holds the axis's longest label."""
    longest = max(len(label) for label in axis.labels)
    return replace(frame, left=max(frame.left, longest * LABEL_LETTER_WIDTH + 14))


def place_y(value: Decimal, axis: Axis, frame: Frame) -> Decimal:
    """Return where a figure stands; what is beyond the axis stands on its end."""
    share = min(max((value - axis.bottom) / (axis.top - axis.bottom), Decimal(0)), Decimal(1))
    return round_place(frame.base_y - share * frame.plot_height)


def label_y(axis: Axis, frame: Frame) -> tuple[Label, ...]:
    """Return the axis's labels beside their ticks."""
    return tuple(
        Label(Decimal(frame.left - 8), place_y(tick, axis, frame), text, "end")
        for tick, text in zip(axis.ticks, axis.labels, strict=True)
    )


def round_place(place: Decimal) -> Decimal:
    """Return a coordinate to a hundredth of a unit."""
    return place.quantize(_HUNDREDTH)
