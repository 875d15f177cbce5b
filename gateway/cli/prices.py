"""``forebay prices``: effective-dated prices over the control API. Amounts stay text."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gateway.cli.control_client import ControlClient
from gateway.cli.options import JsonOption, StateDirOption, either, load, parse_time
from gateway.cli.output import Columns, print_json, print_table

app = typer.Typer(no_args_is_help=True, help="Set and list prices per million tokens.")

_COLUMNS: Columns = (
    ("ROUTE", "route"),
    ("PRICE BOOK", "price_book"),
    ("CURRENCY", "currency"),
    ("INPUT", "input_per_million"),
    ("CACHED INPUT", "cached_input_per_million"),
    ("OUTPUT", "output_per_million"),
    ("EFFECTIVE", "effective_at"),
)


RouteFilter = Annotated[str | None, typer.Argument(help="Only this route's.")]
RouteOption = Annotated[str | None, typer.Option("--route", help="As ROUTE.")]
BookOption = Annotated[str | None, typer.Option("--price-book", help="Only this price book's.")]


@app.command("set")
def set_price(
    *,
    route: Annotated[str, typer.Argument(help="The route's public name.")],
    input_: Annotated[
        str, typer.Option("--input", metavar="AMOUNT", help="Per million input tokens.")
    ],
    output: Annotated[
        str, typer.Option("--output", metavar="AMOUNT", help="Per million output tokens.")
    ],
    cached_input: Annotated[
        str | None,
        typer.Option(metavar="AMOUNT", help="Per million cached input tokens. Default: as input."),
    ] = None,
    price_book: Annotated[
        str | None, typer.Option(help="Id or name; not needed when there is one.")
    ] = None,
    effective_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="ISO 8601. Default: now.")
    ] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set a price from a moment on; what was rated before keeps its price."""
    body = {
        "route": route,
        "price_book": price_book,
        "input_per_million": input_,
        "cached_input_per_million": cached_input,
        "output_per_million": output,
        "effective_at": parse_time(effective_at, "--effective-at"),
    }
    answer = ControlClient(load(state_dir)).post("/prices", body)
    for warning in answer.get("warnings", []):
        print(f"Note: {warning}", file=sys.stderr)
    if as_json:
        print_json(answer)
    else:
        print_table([answer], _COLUMNS, empty="")


@app.command("list")
def list_prices(
    *,
    route: RouteFilter = None,
    only_route: RouteOption = None,
    price_book: BookOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the prices that hold now."""
    wanted = either(route, only_route, "--route")
    _list("/prices", wanted, price_book, state_dir, as_json=as_json)


@app.command("history")
def history(
    *,
    route: RouteFilter = None,
    only_route: RouteOption = None,
    price_book: BookOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List every price ever set, newest effective first."""
    wanted = either(route, only_route, "--route")
    _list("/prices/history", wanted, price_book, state_dir, as_json=as_json)


def _list(
    path: str, route: str | None, price_book: str | None, state_dir: str | None, *, as_json: bool
) -> None:
    answer = ControlClient(load(state_dir)).get(path, route=route, price_book=price_book)
    if as_json:
        print_json(answer["data"])
    else:
        print_table(answer["data"], _COLUMNS, empty="No prices.")
