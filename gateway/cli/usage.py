"""``forebay usage``: what was used and what it cost, over the control API."""

from __future__ import annotations

from enum import StrEnum
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

_FIGURES: Columns = (
    ("REQUESTS", "requests"),
    ("INPUT", "input_tokens"),
    ("CACHED", "cached_input_tokens"),
    ("OUTPUT", "output_tokens"),
    ("CHARGE", "charge"),
    ("CURRENCY", "currency"),
    ("UNPRICED", "unpriced_requests"),
)


class Grouping(StrEnum):
    """What one line of the report is about."""

    DAY = "day"
    HOUR = "hour"
    ORGANIZATION = "organization"
    PROJECT = "project"
    KEY = "key"
    ROUTE = "route"


def show_usage(
    *,
    by: Annotated[Grouping, typer.Option(help="One line for each.")] = Grouping.DAY,
    from_: FromOption = None,
    to: ToOption = None,
    project: Annotated[str | None, typer.Option(help="Only this project (id).")] = None,
    key: Annotated[str | None, typer.Option(help="Only this API key (id).")] = None,
    route: Annotated[str | None, typer.Option(help="Only this route.")] = None,
    time_zone: Annotated[str | None, typer.Option(help="Whose days; default UTC.")] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show usage and charges by day, hour, organization, project, key or route."""
    query = {
        "group_by": by.value,
        "from": parse_time(from_, "--from"),
        "to": parse_time(to, "--to"),
        "project_id": project,
        "api_key_id": key,
        "route": route,
        "time_zone": time_zone,
    }
    answer = ControlClient(load(state_dir)).get("/usage", **query)
    if as_json:
        print_json(answer)
        return
    columns: Columns = ((by.value.upper(), "label"), *_FIGURES)
    # Currencies are never added up, so there may be several totals.
    totals = [{"label": "total", **sums} for sums in answer["totals"]]
    rows: list[dict[str, Any]] = [*answer["data"], *totals] if answer["data"] else []
    print_table(rows, columns, empty=f"No usage from {answer['from']} to {answer['to']}.")
