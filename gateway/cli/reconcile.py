"""``forebay reconcile``: our token counts beside the engines' own."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli.control_client import ControlClient
from gateway.cli.options import JsonOption, StateDirOption, load, parse_time
from gateway.cli.output import Columns, print_json, print_table

_EXIT_DRIFT = 1
_COLUMNS: Columns = (
    ("HOUR", "hour"),
    ("DEPLOYMENT", "deployment"),
    ("REQUESTS", "requests"),
    ("INPUT", "input"),
    ("ENGINE", "engine_input"),
    ("OUTPUT", "output"),
    ("ENGINE", "engine_output"),
    ("EXCESS", "excess_output"),
    ("PERCENT", "excess_percent"),
    ("STATE", "state"),
)


def reconcile(
    *,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="ISO 8601. Default: a day ago.")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="ISO 8601. Default: now.")
    ] = None,
    deployment: Annotated[str | None, typer.Option(help="Only this deployment (id).")] = None,
    percent: Annotated[
        str | None, typer.Option(metavar="N", help="Drift over so much. Default: as set.")
    ] = None,
    min_tokens: Annotated[
        int | None, typer.Option(min=0, help="And over so many tokens. Default: as set.")
    ] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare our token counts with the engines' own. Exit code 1 where they drift, else 0."""
    query = {
        "from": parse_time(from_, "--from"),
        "to": parse_time(to, "--to"),
        "deployment_id": deployment,
        "percent": percent,
        "min_tokens": min_tokens,
    }
    answer = ControlClient(load(state_dir)).get("/reconciliation", **query)
    if as_json:
        print_json(answer)
    else:
        rows = [_row_of(drift) for drift in answer["data"]]
        print_table(rows, _COLUMNS, empty="No engine has been compared in this time.")
    raise typer.Exit(_EXIT_DRIFT if answer["is_over"] else 0)


def _row_of(drift: dict[str, Any]) -> dict[str, Any]:
    return {
        "hour": drift["hour"],
        "deployment": drift["deployment"],
        "requests": drift["requests"],
        "input": drift["tokens"]["input"],
        "engine_input": drift["engine_tokens"]["input"],
        "output": drift["tokens"]["output"],
        "engine_output": drift["engine_tokens"]["output"],
        "excess_output": drift["excess"]["output"],
        "excess_percent": f"{drift['excess_share']['output'] * 100:.2f}",
        "state": "DRIFT" if drift["is_over"] else "ok",
    }
