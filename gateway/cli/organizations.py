"""``forebay organizations``: who is billed, and their shares where requests wait."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli.control_client import ControlClient
from gateway.cli.errors import CliError
from gateway.cli.options import JsonOption, StateDirOption, load
from gateway.cli.output import Columns, print_json, print_table

app = typer.Typer(no_args_is_help=True, help="Create, list and weigh organizations.")

_COLUMNS: Columns = (
    ("ID", "id"),
    ("NAME", "name"),
    ("TIME ZONE", "time_zone"),
    ("PRICE BOOK", "price_book_id"),
    ("WEIGHT", "weight"),
    ("CREATED", "created_at"),
)
_WEIGHT_HELP = "Share beside others that wait for a model, 0.01 to 100."


@app.command("create")
def create(
    *,
    name: Annotated[str, typer.Argument(help="What people call it.")],
    time_zone: Annotated[
        str | None, typer.Option(help="IANA name, of its budgets' windows. Default: UTC.")
    ] = None,
    price_book: Annotated[
        str | None, typer.Option(help="Id or name; not needed when there is one.")
    ] = None,
    weight: Annotated[str | None, typer.Option(help=f"{_WEIGHT_HELP} Default: 1.")] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create an organization."""
    wanted = {"name": name, "time_zone": time_zone, "price_book": price_book, "weight": weight}
    _show(ControlClient(load(state_dir)).post("/organizations", wanted), as_json=as_json)


@app.command("list")
def list_organizations(state_dir: StateDirOption = None, as_json: JsonOption = False) -> None:
    """List organizations, oldest first."""
    answer = ControlClient(load(state_dir)).get("/organizations")
    if as_json:
        print_json(answer["data"])
    else:
        print_table(answer["data"], _COLUMNS, empty="No organizations.")


@app.command("set")
def change(
    *,
    organization_id: Annotated[
        str, typer.Argument(metavar="ORG_ID", help="The organization's id, org_….")
    ],
    weight: Annotated[str | None, typer.Option(help=_WEIGHT_HELP)] = None,
    time_zone: Annotated[
        str | None,
        typer.Option(help="IANA name, of its budgets' windows; while it has none of the calendar."),
    ] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give an organization another weight, which counts within a second, or another time zone."""
    wanted = {"weight": weight, "time_zone": time_zone}
    changes = {name: value for name, value in wanted.items() if value is not None}
    if not changes:
        raise CliError("Say what to change: --weight or --time-zone.")
    client = ControlClient(load(state_dir))
    answer = client.patch(f"/organizations/{organization_id}", changes)
    _show(answer, as_json=as_json)


def _show(organization: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(organization)
    else:
        print_table([organization], _COLUMNS, empty="")
