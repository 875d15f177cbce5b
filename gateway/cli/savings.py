"""``forebay report savings``: what routing among tiers has saved, over the control API."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli.control_client import ControlClient
from gateway.cli.options import (
    FromOption,
    JsonOption,
    StateDirOption,
    ToOption,
    load,
    parse_time,
)
from gateway.cli.output import Columns, print_json, print_table

_COLUMNS: Columns = (
    ("ROUTE", "route"),
    ("TIER", "tier"),
    ("REQUESTS", "requests"),
    ("INPUT", "input_tokens"),
    ("OUTPUT", "output_tokens"),
    ("CHARGE", "charge"),
    ("ALL ON THE LAST", "counterfactual_charge"),
    ("SAVING", "saving"),
    ("CURRENCY", "currency"),
    ("NOT COMPARED", "uncompared_requests"),
)


def show_savings(
    *,
    from_: FromOption = None,
    to: ToOption = None,
    project: Annotated[str | None, typer.Option(help="Only this project (id).")] = None,
    route: Annotated[str | None, typer.Option(help="Only this route.")] = None,
    classifier_cost: Annotated[
        str | None,
        typer.Option(metavar="AMOUNT", help="What a million predictions cost you; 0 if not given."),
    ] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what each tier was charged, beside all of it sent to the route's last tier.

    What the classifier, shadow evaluation and cascades have cost stands on lines of its own, and comes
    off the saving.
    """
    query = {
        "from": parse_time(from_, "--from"),
        "to": parse_time(to, "--to"),
        "project_id": project,
        "route": route,
        "classifier_cost_per_million": classifier_cost,
    }
    answer = ControlClient(load(state_dir)).get("/savings", **query)
    if as_json:
        print_json(answer)
        return
    rows: list[dict[str, Any]] = []
    for found in answer["data"]:
        named = {"route": found["route"], "currency": found["currency"]}
        rows += [{**named, **tier} for tier in found["tiers"]]
        rows.append({**named, "tier": "total", **found["total"]})
        own = [kind for kind in ("classifier", "shadow", "cascade") if found[kind]["calls"]]
        for kind in own:
            cost = {"requests": found[kind]["calls"], "charge": found[kind]["cost"]}
            cost["saving"] = negate(found[kind]["cost"])
            rows.append({**named, "tier": f"{kind} cost", **cost})
        if own:
            rows.append({**named, "tier": "net", "saving": found["net_saving"]})
    print_table(rows, _COLUMNS, empty="No route has chosen among tiers in this time.")


def negate(amount: str) -> str:
    """Return exact text with the other sign."""
    return (
        amount if amount == "0" else amount.removeprefix("-") if amount[0] == "-" else f"-{amount}"
    )
