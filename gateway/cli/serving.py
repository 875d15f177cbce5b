"""``forebay report serving``: how requests were served, over the control API."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

import typer

from billing.costing.show_figures import show_percent
from gateway.cli.control_client import ControlClient
from gateway.cli.options import (
    JsonOption,
    StateDirOption,
    ToOption,
    load,
    parse_time,
)
from gateway.cli.output import Columns, print_json, print_table

_FIGURES = (("ttft_ms", "TTFT"), ("tpot_ms", "TPOT"), ("e2e_ms", "E2E"))
_COLUMNS: Columns = (
    ("REQUESTS", "requests"),
    *(
        (f"{name} {percentile.upper()}", f"{figure}_{percentile}")
        for figure, name in _FIGURES
        for percentile in ("p50", "p95", "p99")
    ),
    ("MET %", "met"),
    ("GOOD/S", "good"),
    ("GOOD TOKENS/S", "good_tokens"),
    ("CHARGE A GOOD ONE", "charge_per_met_request"),
    ("COST A GOOD ONE", "cost_per_met_request"),
    ("CURRENCY", "currency"),
)


class Grouping(StrEnum):
    """What one line of the report is about."""

    ROUTE = "route"
    DEPLOYMENT = "deployment"
    HOUR = "hour"


def show_serving(
    *,
    by: Annotated[Grouping, typer.Option(help="One line for each.")] = Grouping.ROUTE,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="ISO 8601, inclusive. Default: a day ago."),
    ] = None,
    to: ToOption = None,
    route: Annotated[str | None, typer.Option(help="Only this route.")] = None,
    deployment: Annotated[str | None, typer.Option(help="Only this deployment.")] = None,
    ttft_ms: Annotated[str | None, typer.Option(help="TTFT of at most so many ms.")] = None,
    tpot_ms: Annotated[str | None, typer.Option(help="TPOT of at most so many ms.")] = None,
    e2e_ms: Annotated[str | None, typer.Option(help="E2E of at most so many ms.")] = None,
    cost_per_hour: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="What all that is shown costs an hour.")
    ] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show TTFT, TPOT and E2E, goodput within the limits, and what a request within them costs."""
    query = {
        "group_by": by.value,
        "from": parse_time(from_, "--from"),
        "to": parse_time(to, "--to"),
        "route": route,
        "deployment": deployment,
        "ttft_ms": ttft_ms,
        "tpot_ms": tpot_ms,
        "e2e_ms": e2e_ms,
        "cost_per_hour": cost_per_hour,
    }
    answer = ControlClient(load(state_dir)).get("/serving", **query)
    if as_json:
        print_json(answer)
        return
    rows = [_shown(row) for row in answer["data"]]
    if rows:
        rows.append({**_shown(answer["total"]), "label": "total"})
    columns: Columns = ((by.value.upper(), "label"), *_COLUMNS)
    print_table(rows, columns, empty=f"Nothing was served from {answer['from']} to {answer['to']}.")
    for note in list_notes(answer, by=by, cost_per_hour=cost_per_hour):
        print(note)


def list_notes(answer: dict[str, Any], *, by: Grouping, cost_per_hour: str | None) -> Iterator[str]:
    """Yield what the table leaves out, a sentence each."""
    total = answer["total"]
    if total["measured_requests"] < total["requests"]:
        yield f"Times and goodput are of a sample of {total['measured_requests']} requests."
    if total["unjudged_requests"]:
        yield (
            f"{total['unjudged_requests']} completed request(s) were not streamed, so they have no "
            "TTFT and no TPOT: the limits do not judge them, and they are in no share and no goodput."
        )
    for row in [{**total, "label": "All"}] if by is Grouping.HOUR else answer["data"]:
        if row["unpriced_requests"]:
            yield (
                f"{row['label']}: {row['unpriced_requests']} request(s) have no price; nothing of them "
                "is in the charge."
            )
    if cost_per_hour and by is not Grouping.HOUR and len(answer["data"]) > 1:
        yield (
            f"The cost is of all {by.value}s together, so only the total bears it: give --{by.value}, "
            "and what that one costs."
        )


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with times in ms, goodput and shares rounded for people."""
    shown = {
        f"{figure}_{percentile}": _rounded(value, ".1f")
        for figure, _ in _FIGURES
        for percentile, value in row[figure].items()
    }
    share = row["met_share"]
    return (
        row
        | shown
        | {
            "met": None if share is None else show_percent(Decimal(share)),
            "good": show_rate(row["goodput_requests_per_second"]),
            "good_tokens": show_rate(row["goodput_tokens_per_second"]),
            "charge_per_met_request": _rounded(row["charge_per_met_request"], ".8f"),
            "cost_per_met_request": _rounded(row["cost_per_met_request"], ".8f"),
        }
    )


def show_rate(value: str) -> str:
    """Return a rate with three digits at least, however few requests there are."""
    rate = Decimal(value)
    return format(rate, f".{2 - rate.adjusted() if 0 < rate < 1 else 2}f")


def _rounded(value: str | None, form: str) -> str | None:
    return None if value is None else format(Decimal(value), form)
