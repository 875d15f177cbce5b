"""Prints a crossover report for people: money rounded to cents, the rest of it in ``--json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from billing.costing.answer import answer, show_band
from billing.costing.bands import Bands
from billing.costing.choices import Choice, FleetRow
from billing.costing.crossover import CrossoverReport
from billing.costing.sensitivity import SensitivityRow
from billing.costing.show_figures import show_money, show_percent
from gateway.cli.costing_files import show_count
from gateway.cli.output import Columns, print_table

_CHOICES: Columns = (
    ("CHOICE", "choice"),
    ("REPLICAS", "replicas"),
    ("SPARE", "spare"),
    ("A MONTH", "per_month"),
    ("95 % BAND", "band"),
    ("SPILLED %", "spilled"),
    ("STARTS", "starts"),
)
_CROSSINGS: Columns = (
    ("REPLICAS", "replicas"),
    ("SPARE", "spare"),
    ("A DAY", "cost"),
    ("CROSSES AT TOKENS A DAY", "tokens"),
    ("TOKENS/S", "rate"),
    ("CAPACITY TOKENS/S", "capacity"),
    ("BREAK-EVEN %", "break_even"),
    ("TODAY %", "today"),
    ("CAN CROSS", "reachable"),
)
_FLEETS: Columns = (
    ("BASE", "replicas"),
    ("DEDICATED A MONTH", "dedicated"),
    ("HYBRID A MONTH", "hybrid"),
    ("SPILLED %", "spilled"),
    ("HOURS OVER", "hours_over"),
)
_SENSITIVITY: Columns = (
    ("FIGURE", "figure"),
    ("TIMES", "factor"),
    ("SERVERLESS", "serverless"),
    ("DEDICATED", "dedicated"),
    ("HYBRID", "hybrid"),
    ("BEST", "best"),
    ("REPLICAS", "replicas"),
)
_PRICES: Columns = (("SERVERLESS PRICE", "name"), ("OVER THESE HOURS", "total"))
_MOST_FLEETS = 12  # rows; more are thinned out


def print_report(
    report: CrossoverReport,
    sensitivity: Sequence[SensitivityRow],
    currency: str,
    load_notes: Sequence[str],
) -> None:
    """Print the answer first, then what it rests on."""
    comparison, load = report.comparison, report.load
    print(answer(report, currency))
    print(
        f"Load: {load.hours} hour{'' if load.hours == 1 else 's'}, {show_count(load.tokens_per_day)} tokens a day "
        f"({show_count(load.tokens_per_second)} a second), {show_percent(load.output_share)} % "
        f"output, {show_percent(load.cached_share)} % of input cached; serverless "
        f"{load.serverless_per_million:.4f} {currency} per million."
    )
    print()
    rows = [_choice_row(choice, report.bands) for choice in comparison.choices]
    print_table(rows, _CHOICES, empty="")
    for choice in comparison.choices[1:2]:
        if choice.reason:
            print(f"{choice.kind}: no price, because {choice.reason}.")
    _print_prices(report)
    _print_section(_list_crossings(report), _CROSSINGS)
    if len(comparison.fleets) > 1:
        _print_section(_thin([_fleet_row(row) for row in comparison.fleets]), _FLEETS)
    _print_section([_sensitivity_row(row) for row in sensitivity], _SENSITIVITY)
    notes = [*load_notes, *report.notes]
    if notes:
        print()
    for note in notes:
        print(f"Note: {note}.")


def _choice_row(choice: Choice, bands: Bands | None) -> dict[str, Any]:
    band = bands.costs.get(choice.kind) if bands else None
    return {
        "choice": choice.kind,
        "replicas": choice.replicas,
        "spare": choice.spare_replicas,
        "per_month": show_money(choice.per_month),
        "band": show_band(band) if band else None,
        "spilled": show_percent(choice.spilled_share),
        "starts": choice.cold_starts,
    }


def _print_prices(report: CrossoverReport) -> None:
    if len(report.serverless_costs) > 1:
        rows = [
            {"name": cost.name, "total": show_money(cost.total)} for cost in report.serverless_costs
        ]
        _print_section(rows, _PRICES)


def _print_section(rows: list[dict[str, Any]], columns: Columns) -> None:
    if rows:
        print()
        print_table(rows, columns, empty="")


def _list_crossings(report: CrossoverReport) -> list[dict[str, Any]]:
    rows = [
        {
            "replicas": found.replicas,
            "spare": found.spare_replicas,
            "cost": show_money(found.crossing.cost_per_day),
            "tokens": show_count(found.crossing.tokens_per_day),
            "rate": show_count(found.crossing.tokens_per_second),
            "capacity": show_count(found.capacity_tokens_per_second),
            "break_even": show_percent(found.break_even_utilization),
            "today": show_percent(found.utilization_today),
            "reachable": "yes" if found.is_reachable else "no",
        }
        for found in report.crossings
    ]
    return _thin(rows)


def _fleet_row(row: FleetRow) -> dict[str, Any]:
    return {
        "replicas": row.replicas,
        "dedicated": show_money(row.dedicated_per_month),
        "hybrid": show_money(row.hybrid_per_month),
        "spilled": show_percent(row.spilled_share),
        "hours_over": row.hours_over,
    }


def _sensitivity_row(row: SensitivityRow) -> dict[str, Any]:
    return {
        "figure": row.figure,
        "factor": format(row.factor, "f"),
        "serverless": show_money(row.serverless),
        "dedicated": show_money(row.dedicated),
        "hybrid": show_money(row.hybrid),
        "best": row.best,
        "replicas": row.replicas,
    }


def _thin(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return at most about :data:`_MOST_FLEETS` rows, the first and the last among them."""
    if len(rows) <= _MOST_FLEETS:
        return rows
    step = -(-len(rows) // _MOST_FLEETS)
    return [row for index, row in enumerate(rows) if index % step == 0 or index == len(rows) - 1]
