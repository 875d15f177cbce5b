"""``forebay limits``: rate limits over the control API."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from gateway.cli.control_client import ControlClient
from gateway.cli.errors import CliError
from gateway.cli.options import (
    JsonOption,
    ScopeArgument,
    ScopeIdArgument,
    ScopeIdOption,
    ScopeOption,
    StateDirOption,
    either,
    load,
)
from gateway.cli.output import Columns, print_json, print_table

app = typer.Typer(no_args_is_help=True, help="Set, list and remove rate limits.")

_COLUMNS: Columns = (
    ("ID", "id"),
    ("SCOPE", "scope"),
    ("OF", "scope_id"),
    ("METRIC", "metric"),
    ("AMOUNT", "amount"),
    ("PER SECONDS", "per_seconds"),
    ("ROUTE", "route_id"),
)
_COUNTED_METRICS = ("requests", "input_tokens", "output_tokens", "total_tokens")
_SPANS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


@app.command("set")
def set_limit(
    *,
    scope: Annotated[str, typer.Argument(help="key, project, organization or route.")],
    scope_id: Annotated[str, typer.Argument(help="Id; of a route also its public name.")],
    metric: Annotated[
        str,
        typer.Argument(help="requests, input_tokens, output_tokens, total_tokens or in_flight."),
    ],
    amount: Annotated[str, typer.Argument(help="At most so many; 0 lets nothing through.")],
    per: Annotated[
        str | None, typer.Option(help="second, minute, hour or day; not with in_flight.")
    ] = None,
    route: Annotated[
        str | None, typer.Option(help="Only requests of this route count. Default: all.")
    ] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set a limit, or change the one there is; what was used up stays so."""
    body = {
        "scope": scope,
        "scope_id": scope_id,
        "metric": metric,
        "amount": _parse_amount(amount),
        "per_seconds": _parse_span(per, metric),
        "route": route,
    }
    answer = ControlClient(load(state_dir)).post("/limits", body)
    if as_json:
        print_json(answer)
    else:
        print_table([answer], _COLUMNS, empty="")


@app.command("list")
def list_limits(
    *,
    scope: ScopeArgument = None,
    scope_id: ScopeIdArgument = None,
    only_scope: ScopeOption = None,
    of: ScopeIdOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List rate limits, oldest first."""
    answer = ControlClient(load(state_dir)).get(
        "/limits",
        scope=either(scope, only_scope, "--scope"),
        scope_id=either(scope_id, of, "--of"),
    )
    if as_json:
        print_json(answer["data"])
    else:
        print_table(answer["data"], _COLUMNS, empty="No limits.")


@app.command("remove")
def remove_limit(
    limit_id: Annotated[str, typer.Argument(metavar="LIMIT_ID", help="The limit's id, lim_….")],
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a limit."""
    answer = ControlClient(load(state_dir)).delete(f"/limits/{limit_id}")
    if as_json:
        print_json(answer)
    else:
        print(f"{answer['id']} is removed.")


def _parse_amount(text: str) -> int:
    """Return a whole number; anything else is refused here, because JSON would lose what it was."""
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise CliError(f"The amount {text!r} is no whole number from 0 up.")
    return int(text)


def _parse_span(text: str | None, metric: str) -> int:
    if text is None:
        if metric in _COUNTED_METRICS:
            raise CliError(f"A limit on {metric} needs --per, one of {', '.join(_SPANS)}.")
        return 0
    if metric == "in_flight":
        raise CliError("--per does not go with in_flight: requests in flight have no span of time.")
    if text not in _SPANS:
        raise CliError(f"--per {text!r} is none of {', '.join(_SPANS)}.")
    return _SPANS[text]
