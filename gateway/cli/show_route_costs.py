"""``forebay report crossover --by-route``: a line for each route, and why one has no figures."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from billing.costing.plain_report import to_plain
from billing.costing.report_routes import RouteReport
from billing.costing.show_figures import show_money
from gateway.cli.output import Columns, print_table

_COLUMNS: Columns = (
    ("ROUTE", "route"),
    ("TOKENS A DAY", "tokens_per_day"),
    ("SERVERLESS", "serverless"),
    ("DEDICATED", "dedicated"),
    ("HYBRID", "hybrid"),
    ("BEST", "best"),
    ("REPLICAS", "replicas"),
    ("SAVING", "saving"),
)
_MONEY = ("serverless", "dedicated", "hybrid", "saving")
_FIGURES = ("tokens_per_day", *_MONEY, "best", "replicas", "reason")


def plain_route_costs(found: RouteReport) -> dict[str, Any]:
    """Return the line as JSON has it: figures, or the ``problem`` for which there are none."""
    told: dict[str, Any] = {
        "route": found.route or "all together",
        "currency": found.currency,
        **dict.fromkeys(_FIGURES),
        "problem": found.problem,
        "ledger_notes": list(found.load_notes),
        "notes": [],
    }
    if found.report is None:
        return told
    comparison = found.report.comparison
    best = comparison.get(comparison.best)
    figures: dict[str, Any] = {
        choice.kind: to_plain(choice.per_month) for choice in comparison.choices
    }
    return (
        told
        | figures
        | {
            "tokens_per_day": format(found.report.load.tokens_per_day, ".0f"),
            "saving": to_plain(comparison.saving_per_month),
            "best": comparison.best,
            "replicas": best.replicas + best.spare_replicas,
            "reason": comparison.dedicated.reason,
            "notes": list(found.report.notes),
        }
    )


def print_route_costs(rows: Sequence[dict[str, Any]], currency: str | None) -> None:
    """Print the table, and beneath it what a line cannot hold; ``currency`` None: of several."""
    named = "" if currency is None else f" in {currency}"
    print(f"Costs of a month of 30 days{named}. All together: on one kind of replica.")
    columns = _COLUMNS if currency else (*_COLUMNS, ("CURRENCY", "currency"))
    print_table([{**row, **_rounded(row)} for row in rows], columns, empty="")
    for row in rows:
        if row["problem"]:
            print(f"{row['route']}: {row['problem']}.")
        if row["reason"]:
            print(f"{row['route']}: dedicated has no price, because {row['reason']}.")
    for row in rows:
        for note in row["ledger_notes"]:
            print(f"Note on {row['route']}: {note}.")
    for note, routes in _group_notes(rows).items():
        print(f"Note on {', '.join(routes)}: {note}.")


def _group_notes(rows: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the routes of each note, so that what holds for all is said once."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for note in row["notes"]:
            found.setdefault(note, []).append(row["route"])
    return found


def _rounded(row: dict[str, Any]) -> dict[str, str | None]:
    return {name: None if row[name] is None else show_money(Decimal(row[name])) for name in _MONEY}
