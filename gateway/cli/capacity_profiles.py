"""``forebay report capacity``: measured capacities, kept by a running Forebay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.control_client import ControlClient
from gateway.cli.costing_files import read_text
from gateway.cli.options import JsonOption, StateDirOption, load
from gateway.cli.output import Columns, print_json, print_table

app = typer.Typer(no_args_is_help=True, help="Measured capacities, kept for later comparisons.")

_COLUMNS: Columns = (
    ("NAME", "name"),
    ("MEASURED AS", "measured_as"),
    ("GPUS", "gpus"),
    ("POINTS", "points"),
    ("MEASURED", "measured_at"),
    ("STORED", "stored_at"),
)
NameArgument = Annotated[str, typer.Argument(metavar="NAME")]


@app.command("add")
def add(
    name: NameArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A capacity profile: JSON.")],
    *,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep a profile under a name, in place of the one that is kept there."""
    content = read_text(file).encode()
    answer = ControlClient(load(state_dir)).upload(f"/capacity-profiles/{name}", content)
    if as_json:
        print_json(answer)
    else:
        print_table([answer], _COLUMNS, empty="")


@app.command("list")
def list_profiles(state_dir: StateDirOption = None, as_json: JsonOption = False) -> None:
    """List the profiles that are kept."""
    answer = ControlClient(load(state_dir)).get("/capacity-profiles")
    if as_json:
        print_json(answer["data"])
    else:
        print_table(answer["data"], _COLUMNS, empty="No capacity profile is kept.")


@app.command("remove")
def remove(
    name: NameArgument, *, state_dir: StateDirOption = None, as_json: JsonOption = False
) -> None:
    """Forget a profile."""
    answer = ControlClient(load(state_dir)).delete(f"/capacity-profiles/{name}")
    if as_json:
        print_json(answer)
    else:
        print(f"{answer['name']} is forgotten.")
