"""The cost-quality curve as an SVG, without a plotting library."""

from __future__ import annotations

from html import escape
from typing import Any

_WIDTH, _HEIGHT, _MARGIN = 640, 420, 56
_COLOURS = {
    "classifier": "#0b62a4",
    "length": "#b8860b",
    "category_lookup": "#7a5195",
    "random": "#888888",
    "oracle": "#2e8b57",
}


def draw_curves(title: str, judged: dict[str, Any]) -> str:
    """Return an SVG of one dataset's entry of the report: quality over the share of large calls."""
    curves = {name: router["curve"] for name, router in judged["routers"].items()}
    qualities = [quality for curve in curves.values() for _, quality in curve] or [0.0, 1.0]
    low, high = min(qualities), max(qualities)
    span = (high - low) or 1.0

    def place(share: float, quality: float) -> str:
        x = _MARGIN + share * (_WIDTH - 2 * _MARGIN)
        y = _HEIGHT - _MARGIN - (quality - low) / span * (_HEIGHT - 2 * _MARGIN)
        return f"{x:.1f},{y:.1f}"

    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            'font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_MARGIN}" y="24" font-size="15">{escape(title)}</text>',
        (
            f'<text x="{_WIDTH // 2}" y="{_HEIGHT - 14}" text-anchor="middle">'
            "share of calls to the large model</text>"
        ),
        f'<text x="8" y="{_MARGIN - 10}">quality {low:.3f} to {high:.3f}</text>',
        (
            f'<path d="M{_MARGIN},{_MARGIN} V{_HEIGHT - _MARGIN} H{_WIDTH - _MARGIN}" '
            'fill="none" stroke="black"/>'
        ),
    ]
    for number, (name, curve) in enumerate(curves.items()):
        colour = _COLOURS.get(name, "black")
        points = " ".join(place(share, quality) for share, quality in curve)
        y = _HEIGHT - _MARGIN - 14 - 16 * number
        label = f"{escape(name)}: APGR {judged['routers'][name]['apgr']:.3f}"
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>',
            f'<text x="{_WIDTH - _MARGIN}" y="{y}" text-anchor="end" fill="{colour}">{label}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
