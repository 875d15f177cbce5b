"""Quality over cost of two neighbouring tiers, threshold by threshold."""

from __future__ import annotations

from decimal import Decimal

from admin_ui.axes import fraction_axis
from admin_ui.drawing import Chart
from admin_ui.formatting import percent
from admin_ui.line_chart import FULL, Limit, Line, Mark, Plot, Point, draw_both
from admin_ui.shadow_records import CurvePoint, Pair

SERIES = ("quality", "95 % interval", "in effect", "proposed")  # in the order of their colours
_IN_EFFECT, _PROPOSED = 2, 3
_QUARTERS = tuple(Decimal(part) / 4 for part in range(5))


def has_costs(pair: Pair) -> bool:
    """Say whether the curve's costs are known; if not, the share of requests stands for them."""
    return any(point.relative_cost is not None for point in pair.curve or ())


def pair_chart(pair: Pair, quality_floor: Decimal | None) -> Chart | None:
    """Return the curve; None of fewer than two thresholds whose quality is known."""
    is_cost = has_costs(pair)
    known = [(x, point) for point in pair.curve or () if (x := _place(point, is_cost)) is not None]
    known.sort(key=lambda one: (one[0], -one[1].threshold))
    lines = _draw_lines([(x, point) for x, point in known if point.quality is not None])
    if not lines:
        return None
    figures = [y for line in lines for _, y in line.points]
    limits = []
    if quality_floor is not None:
        figures.append(quality_floor)
        limits.append(Limit("floor", y=quality_floor))
    widest = max([Decimal(1), *(x for x, _ in known)])
    marks = [
        Mark(series, (x, point.quality.value), _tell(name, point))
        for series, name, threshold in _list_named(pair)
        for x, point in known
        if point.threshold == threshold and point.quality is not None
    ]
    plot = Plot(
        lines=lines,
        x_top=widest,
        y_axis=fraction_axis(min(figures)),
        x_labels=tuple((part * widest, f"{part * widest * 100:.0f} %") for part in _QUARTERS),
        marks=tuple(marks),
        limits=tuple(limits),
    )
    over = "cost" if is_cost else "share of requests at the upper tier"
    told = " ".join(mark.tooltip + "." for mark in marks)
    return draw_both(
        plot, f"Quality by {over}, {pair.lower_tier} to {pair.upper_tier}. {told}", wide=FULL
    )


def _place(point: CurvePoint, is_cost: bool) -> Decimal | None:
    return point.relative_cost if is_cost else point.large_share


def _draw_lines(known: list[tuple[Decimal, CurvePoint]]) -> tuple[Line, ...]:
    if len(known) < 2:
        return ()
    sides: dict[str, list[Point]] = {"low": [], "high": [], "value": []}
    for x, point in known:
        for side, points in sides.items():
            points.append((x, getattr(point.quality, side)))
    return tuple(Line(0 if side == "value" else 1, tuple(sides[side])) for side in sides)


def _list_named(pair: Pair) -> list[tuple[int, str, float]]:
    named = [(_IN_EFFECT, "In effect", pair.threshold)]
    if pair.proposal is not None:
        named.append((_PROPOSED, "Proposed", pair.proposal.threshold))
    return named


def _tell(name: str, point: CurvePoint) -> str:
    cost = "" if point.relative_cost is None else f", {percent(point.relative_cost)} of the cost"
    quality = "" if point.quality is None else f", quality {point.quality.value:.3f}"
    return f"{name}: {point.threshold:.4g}{quality}{cost}, {percent(point.large_share)} go up"
