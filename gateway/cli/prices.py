"""``forebay prices``: effective-dated prices over the control API. Amounts stay text."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gateway.cli.control_client import ControlClient
from gateway.cli.options import JsonOption, StateDirOption, load, parse_time
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
def list_prices(state_dir: StateDirOption = None, as_json: JsonOption = False) -> None:
    """List the prices that hold now."""
    answer = ControlClient(load(state_dir)).get("/prices")
    if as_json:
        print_json(answer["data"])
    else:
        print_table(answer["data"], _COLUMNS, empty="No prices.")


@app.command("history")
def history(
    route: Annotated[str | None, typer.Option(help="Only this route's.")] = None,
    price_book: Annotated[str | None, typer.Option(help="Only this price book's.")] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List every price ever set, newest effective first."""
    client = ControlClient(load(state_dir))
    answer = client.get("/prices/history", route=route, price_book=price_book)
    if as_json:
        print_json(answer["data"])
    else:
        print_table(answer["data"], _COLUMNS, empty="No prices.")
