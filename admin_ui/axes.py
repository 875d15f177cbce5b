"""Axes of charts: round values, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

_INTERVALS = 4
_STEPS = (Decimal(1), Decimal(2), Decimal("2.5"), Decimal(5), Decimal(10))
_COUNT_STEPS = (Decimal(1), Decimal(2), Decimal(5), Decimal(10))
_FRACTION_STEPS = tuple(map(Decimal, ("0.01", "0.025", "0.05", "0.1", "0.25")))
_MS_PER_SECOND = 1000


@dataclass(frozen=True)
class Axis:
    """Round values upwards, from 0 but for fractions; the last at or above the highest figure."""

    ticks: tuple[Decimal, ...]
    labels: tuple[str, ...]

    @property
    def bottom(self) -> Decimal:
        """Return the lowest tick."""
        return self.ticks[0]

    @property
    def top(self) -> Decimal:
        """Return the highest tick, always above the lowest."""
        return self.ticks[-1]


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


def rate_axis(highest: Decimal) -> Axis:
    """Return the axis for rates up to ``highest``, with as many decimals as its steps have."""
    ticks = _ticks(highest, _STEPS)
    decimals = _decimals(ticks[1])
    return Axis(ticks, tuple(f"{tick:,.{decimals}f}" for tick in ticks))


def fraction_axis(lowest: Decimal) -> Axis:
    """Return the axis for fractions from ``lowest`` to 1, begun near it so that they are told apart."""
    step = next(
        (step for step in _FRACTION_STEPS if 1 - _INTERVALS * step <= lowest), _FRACTION_STEPS[-1]
    )
    ticks = tuple(1 - step * back for back in range(_INTERVALS, -1, -1))
    return Axis(ticks, tuple(f"{tick:.{_decimals(step)}f}" for tick in ticks))


def duration_axis(highest_ms: Decimal) -> Axis:
    """Return the axis for times up to ``highest_ms``: labels in ms, or in s from a second on."""
    if highest_ms < _MS_PER_SECOND:
        axis = rate_axis(highest_ms)
        return Axis(axis.ticks, tuple(f"{label} ms" for label in axis.labels))
    axis = rate_axis(highest_ms / _MS_PER_SECOND)
    ticks = tuple(tick * _MS_PER_SECOND for tick in axis.ticks)
    return Axis(ticks, tuple(f"{label} s" for label in axis.labels))


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
