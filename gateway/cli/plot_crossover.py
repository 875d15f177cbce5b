"""The crossover as an SVG, without a plotting library: cost over tokens a day, today marked."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from html import escape

from billing.costing.crossover import CrossoverQuestion, CrossoverReport
from billing.costing.show_figures import show_money
from gateway.cli.costing_files import show_count

_WIDTH, _HEIGHT, _LEFT, _MARGIN = 720, 440, 88, 56
_COLOURS = {"serverless": "#0b62a4", "dedicated": "#b8500b", "hybrid": "#2e7d32"}
_STEPS = 60
Place = Callable[[float, float], str]


def draw_crossover(question: CrossoverQuestion, report: CrossoverReport, currency: str) -> str:
    """Return an SVG: what a day costs at a steady load, by tokens a day.

    Serverless is a line through 0; dedicated GPUs are steps, a replica more where the ones there
    are full. Points mark today's mean load and what its real hours cost.
    """
    today = float(report.load.tokens_per_day)
    widest = max(
        [
            today * 1.6,
            *(float(found.crossing.tokens_per_day) * 1.3 for found in report.crossings[:1]),
        ]
    )
    serverless = _line(report, widest)
    dedicated = _steps(question, report, widest)
    marks = [
        (choice.kind, float(choice.per_month) / 30)
        for choice in report.comparison.choices
        if choice.per_month is not None
    ]
    highest = max(y for _, y in [*serverless, *dedicated, *((0.0, cost) for _, cost in marks)])
    place = _make_place(widest, (highest or 1.0) * 1.05)
    parts = _frame(f"Cost of a day in {currency}", widest, (highest or 1.0) * 1.05, place)
    parts += _draw_line("serverless", serverless, place, 0)
    if dedicated:
        parts += _draw_line("dedicated", dedicated, place, 1)
    x_today = place(today, 0).split(",")[0]
    parts.append(
        f'<path d="M{x_today},{_MARGIN} V{_HEIGHT - _MARGIN}" stroke="#777" stroke-dasharray="4 4"/>'
        f'<text x="{x_today}" y="{_MARGIN - 6}" text-anchor="middle">today</text>'
    )
    for number, (kind, cost) in enumerate(marks):
        x, y = place(today, cost).split(",")
        text = f"{kind}, real hours: {show_money(Decimal(str(cost)))}"
        parts.append(f'<circle cx="{x}" cy="{y}" r="4" fill="{_COLOURS[kind]}"/>')
        parts.append(_legend(text, _COLOURS[kind], number + 2))
    return "\n".join([*parts, "</svg>", ""])


def _line(report: CrossoverReport, widest: float) -> list[tuple[float, float]]:
    per_token = float(report.load.serverless_per_million) / 1e6
    return [(0.0, 0.0), (widest, widest * per_token)]


def _steps(
    question: CrossoverQuestion, report: CrossoverReport, widest: float
) -> list[tuple[float, float]]:
    """Return the corners of the dedicated cost at a load that is the same in every hour."""
    if not report.crossings:
        return []
    terms = question.terms
    first = report.crossings[0]
    per_replica = float(first.capacity_tokens_per_second * terms.max_utilization) * 86_400
    price = float(terms.standing_price_per_hour) * 24
    spare = terms.spare_replicas
    corners: list[tuple[float, float]] = []
    count, begin = 1, 0.0
    while begin < widest and count <= 10 * _STEPS:
        end = min(widest, count * per_replica)
        cost = (count + spare) * price
        corners += [(begin, cost), (end, cost)]
        count, begin = count + 1, end
    return corners


def _make_place(widest: float, highest: float) -> Place:
    def place(tokens: float, cost: float) -> str:
        x = _LEFT + tokens / widest * (_WIDTH - _LEFT - _MARGIN)
        y = _HEIGHT - _MARGIN - cost / highest * (_HEIGHT - 2 * _MARGIN)
        return f"{x:.1f},{y:.1f}"

    return place


def _frame(title: str, widest: float, highest: float, place: Place) -> list[str]:
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            'font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="24" font-size="15">{escape(title)}</text>',
        f'<text x="{_WIDTH // 2}" y="{_HEIGHT - 12}" text-anchor="middle">tokens a day</text>',
        (
            f'<path d="M{_LEFT},{_MARGIN} V{_HEIGHT - _MARGIN} H{_WIDTH - _MARGIN}" '
            'fill="none" stroke="black"/>'
        ),
    ]
    for quarter in range(5):
        x, y = place(widest * quarter / 4, highest * quarter / 4).split(",")
        parts.append(
            f'<text x="{x}" y="{_HEIGHT - _MARGIN + 16}" text-anchor="middle">'
            f"{show_count(widest * quarter / 4)}</text>"
            f'<text x="{_LEFT - 6}" y="{y}" text-anchor="end">{highest * quarter / 4:.2f}</text>'
        )
    return parts


def _draw_line(
    kind: str, corners: list[tuple[float, float]], place: Place, number: int
) -> list[str]:
    points = " ".join(place(tokens, cost) for tokens, cost in corners)
    line = f'<polyline points="{points}" fill="none" stroke="{_COLOURS[kind]}" stroke-width="2"/>'
    return [line, _legend(f"{kind}, steady load", _COLOURS[kind], number)]


def _legend(text: str, colour: str, number: int) -> str:
    y = _MARGIN + 14 + 16 * number
    return f'<text x="{_LEFT + 10}" y="{y}" fill="{colour}">{escape(text)}</text>'
