"""``forebay routes``: public model names and where they lead, over the control API."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli import fleet_options as fleet
from gateway.cli.control_client import ControlClient
from gateway.cli.errors import CliError
from gateway.cli.options import JsonOption, StateDirOption, load
from gateway.cli.output import Columns, print_json, print_table
from gateway.cli.route_shadow import clear_shadow, set_shadow
from gateway.cli.route_tiers import clear_tiers, set_tiers, write_tiers

app = typer.Typer(no_args_is_help=True, help="Create, lead elsewhere and remove routes.")

app.command("set-tiers")(set_tiers)
app.command("clear-tiers")(clear_tiers)
app.command("set-shadow")(set_shadow)
app.command("clear-shadow")(clear_shadow)

_COLUMNS: Columns = (
    ("ID", "id"),
    ("NAME", "name"),
    ("DEPLOYMENT", "deployment"),
    ("FALLBACKS", "fallbacks"),
    ("TIERS", "tiers"),
    ("QUEUE", "queue"),
)


@app.command("list")
def list_routes(state_dir: StateDirOption = None, as_json: JsonOption = False) -> None:
    """List routes by name; "-" is the default."""
    answer = ControlClient(load(state_dir)).get("/routes")
    if as_json:
        print_json(answer["data"])
    else:
        print_table([_row(item) for item in answer["data"]], _COLUMNS, empty="No routes.")


@app.command("create")
def create_route(
    *,
    name: Annotated[str, typer.Argument(help="What callers ask for as model.")],
    deployment: fleet.DeploymentArgument,
    fallback: fleet.FallbackOption = None,
    queue_priority: fleet.PriorityOption = None,
    queue_size: fleet.SizeOption = None,
    queue_deadline_seconds: fleet.DeadlineOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a public model name; set its prices next."""
    given = {
        "name": name,
        "deployment": deployment,
        "fallbacks": fallback or None,
        "queue.priority": queue_priority,
        "queue.size": queue_size,
        "queue.deadline_seconds": queue_deadline_seconds,
    }
    answer = ControlClient(load(state_dir)).post("/routes", fleet.collect(given))
    _print_one(answer, as_json=as_json)


@app.command("set")
def set_route(
    *,
    route: fleet.RouteArgument,
    deployment: Annotated[
        str | None, typer.Option(metavar="DEPLOYMENT", help="Lead there from now on.")
    ] = None,
    fallback: fleet.FallbackOption = None,
    no_fallbacks: Annotated[
        bool, typer.Option("--no-fallbacks", help="Fall back to none.")
    ] = False,
    queue_priority: fleet.PriorityOption = None,
    queue_size: fleet.SizeOption = None,
    queue_deadline_seconds: fleet.DeadlineOption = None,
    reset: fleet.ResetOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a route, without restart; fallbacks replace those there were."""
    if fallback and no_fallbacks:
        raise CliError("--fallback and --no-fallbacks exclude each other.")
    given = {
        "deployment": deployment,
        "fallbacks": [] if no_fallbacks else fallback or None,
        "queue.priority": queue_priority,
        "queue.size": queue_size,
        "queue.deadline_seconds": queue_deadline_seconds,
    }
    changes = fleet.collect(given, reset)
    client = ControlClient(load(state_dir))
    found = fleet.get_by_id_or_name(client, "routes", route)
    _print_one(client.patch(f"/routes/{found['id']}", changes), as_json=as_json)


@app.command("remove")
def remove_route(
    route: fleet.RouteArgument, state_dir: StateDirOption = None, as_json: JsonOption = False
) -> None:
    """Remove a route that no other falls back to or has as a tier; what it was charged for stays in the books."""
    client = ControlClient(load(state_dir))
    found = fleet.get_by_id_or_name(client, "routes", route)
    answer = client.delete(f"/routes/{found['id']}")
    if as_json:
        print_json(answer)
    else:
        print(f"{answer['id']} ({answer['name']}) is removed.")


def _row(route: dict[str, Any]) -> dict[str, Any]:
    queue, tiers = fleet.write_settings(route["queue"]), write_tiers(route["tiers"])
    return {**route, "queue": queue, "tiers": tiers}


def _print_one(route: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(route)
    else:
        print_table([_row(route)], _COLUMNS, empty="")
