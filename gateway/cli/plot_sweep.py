"""A sweep as an SVG, drawn from its report alone: throughput over the load, and latencies over it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 480, 400, 64, 20, 56, 48
_RATES = (
    ("output_tokens_per_second", "output tokens/s", "#0b62a4"),
    ("goodput_tokens_per_second", "goodput, tokens/s", "#2e7d32"),
)
_SPANS = (
    ("e2e_ms", "p95", "E2E p95", "#7a5195"),
    ("ttft_ms", "p95", "TTFT p95", "#b8500b"),
    ("ttft_ms", "p50", "TTFT p50", "#e0a060"),
    ("itl_ms", "p95", "ITL p95", "#0b62a4"),
    ("tpot_ms", "p95", "TPOT p95", "#2e8b57"),
)
Points = list[tuple[float, Mapping[str, Any]]]


class _Panel:
    """One drawing with axes; the load's is logarithmic."""

    def __init__(
        self, number: int, title: str, loads: Sequence[float], highest: float, least: float | None
    ) -> None:
        self._x = number * _WIDTH
        self._low, self._high = min(loads), max(loads)
        self._highest, self._least = highest, least  # least: the logarithmic axis begins there
        self.parts = [
            f'<text x="{self._x + _LEFT}" y="24" font-size="15">{escape(title)}</text>',
            (
                f'<path d="M{self._x + _LEFT},{_TOP} V{_HEIGHT - _BOTTOM} '
                f'H{self._x + _WIDTH - _RIGHT}" fill="none" stroke="black"/>'
            ),
        ]

    def x(self, load: float) -> float:
        """Return the place of a load."""
        span = math.log(self._high / self._low) or 1.0
        share = math.log(load / self._low) / span
        return self._x + _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """Return the place of a figure."""
        if self._least is None:
            share = value / self._highest
        else:
            value = max(value, self._least)
            share = math.log(value / self._least) / (math.log(self._highest / self._least) or 1.0)
        return _HEIGHT - _BOTTOM - min(share, 1.0) * (_HEIGHT - _TOP - _BOTTOM)

    def draw_ticks(self, loads: Sequence[float], unit: str) -> None:
        """Write figures at the axes."""
        at = -math.inf
        for load in loads:
            if self.x(load) - at > 28:
                at = self.x(load)
                self._text(at, _HEIGHT - _BOTTOM + 16, f"{load:.3g}", "middle")
        self._text(self._x + _WIDTH // 2, _HEIGHT - 12, unit, "middle")
        for value in self._ticks():
            self._text(self._x + _LEFT - 6, self.y(value) + 4, f"{value:,.4g}", "end")

    def draw(self, points: Points, label: str, colour: str, number: int) -> None:
        """Draw a line with the figures' intervals."""
        places = [(self.x(load), self.y(found["value"]), found) for load, found in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
        self.parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        for x, y, found in places:
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
            if found["low"] is not None and found["high"] is not None:
                self.parts.append(
                    f'<path d="M{x:.1f},{self.y(found["low"]):.1f} V{self.y(found["high"]):.1f}" '
                    f'stroke="{colour}"/>'
                )
        self._text(self._x + _LEFT + 10, _TOP + 4 + 16 * number, label, "start", colour)

    def mark(self, load: float, text: str) -> None:
        """Mark a load from top to bottom."""
        if not self._low <= load <= self._high:
            return
        x = self.x(load)
        self.parts.append(
            f'<path d="M{x:.1f},{_TOP - 8} V{_HEIGHT - _BOTTOM}" stroke="#777" '
            'stroke-dasharray="4 4"/>'
        )
        self._text(x, _TOP - 12, text, "middle", "#555")

    def _ticks(self) -> list[float]:
        if self._least is None:
            return [self._highest * quarter / 4 for quarter in range(5)]
        first = math.ceil(math.log10(self._least) - 1e-9)
        last = math.floor(math.log10(self._highest) + 1e-9)
        return sorted({self._least, *(10.0**power for power in range(first, last + 1))})

    def _text(self, x: float, y: float, text: str, anchor: str, colour: str = "black") -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">'
            f"{escape(text)}</text>"
        )


def draw_sweep(report: Mapping[str, Any]) -> str:
    """Return the SVG of a report that has steps."""
    steps = sorted(report["steps"], key=lambda step: step["load"])
    loads = [step["load"] for step in steps]
    unit = "requests/s offered" if report["loop"] == "open" else "clients"
    model = str(report.get("target", {}).get("model", ""))
    rates = {
        name: [(step["load"], step[name]) for step in steps if step[name]["value"] is not None]
        for name, _, _ in _RATES
    }
    most = max((found["value"] for points in rates.values() for _, found in points), default=0.0)
    left = _Panel(0, f"Throughput of {model}", loads, _round_up(most), None)
    left.draw_ticks(loads, unit)
    for number, (name, label, colour) in enumerate(_RATES):
        left.draw(rates[name], label, colour, number)
    spans = [
        ([(step["load"], step[name][part]) for step in steps if part in step[name]], label, colour)
        for name, part, label, colour in _SPANS
    ]
    values = [found["value"] for points, _, _ in spans for _, found in points if found["value"]]
    least = 10.0 ** math.floor(math.log10(min(values, default=1.0)))
    right = _Panel(1, "Latency in ms", loads, max([*values, least * 10]) * 1.5, least)
    right.draw_ticks(loads, unit)
    for number, (points, label, colour) in enumerate(spans):
        right.draw(points, label, colour, number)
    knee = (report.get("knee") or {}).get("load")
    if knee is not None:
        for panel in (left, right):
            panel.mark(knee["value"], f"knee {knee['value']:.3g}")
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">\n'
        f'<rect width="{2 * _WIDTH}" height="{_HEIGHT}" fill="white"/>'
    )
    return "\n".join([head, *left.parts, *right.parts, "</svg>", ""])


def _round_up(value: float) -> float:
    """Return the next value of two digits above, for an axis."""
    if value <= 0:
        return 1.0
    size = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value * 1.05 / size) * size
