"""``forebay deployments``: what is served, over the control API."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli import fleet_options as fleet
from gateway.cli.control_client import ControlClient
from gateway.cli.options import JsonOption, StateDirOption, load
from gateway.cli.output import Columns, print_json, print_table
from gateway.cli.replicas import print_replicas

app = typer.Typer(no_args_is_help=True, help="Create, change and remove deployments.")

_COLUMNS: Columns = (
    ("ID", "id"),
    ("NAME", "name"),
    ("ENGINE MODEL", "engine_model"),
    ("REPLICAS", "replica_count"),
    ("MAX IN FLIGHT", "max_in_flight"),
    ("CONTEXT", "context_tokens"),
    ("FEATURES", "features"),
    ("ADAPTERS", "adapters"),
)
_SETTING_COLUMNS: Columns = (("SETTING", "name"), ("VALUE", "value"))


@app.command("list")
def list_deployments(state_dir: StateDirOption = None, as_json: JsonOption = False) -> None:
    """List deployments, oldest first; "-" is the default, or what the engine says."""
    answer = ControlClient(load(state_dir)).get("/deployments")
    if as_json:
        print_json(answer["data"])
    else:
        print_table([_row(item) for item in answer["data"]], _COLUMNS, empty="No deployments.")


@app.command("show")
def show_deployment(
    deployment: fleet.DeploymentArgument,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a deployment's settings and its replicas."""
    client = ControlClient(load(state_dir))
    _print_one(fleet.get_by_id_or_name(client, "deployments", deployment), as_json=as_json)


@app.command("create")
def create_deployment(
    *,
    name: Annotated[str, typer.Argument(help="What people call it.")],
    engine_model: Annotated[str, typer.Argument(help="The name that its engines know.")],
    max_in_flight: fleet.MaxInFlightOption = None,
    context_tokens: fleet.ContextOption = None,
    feature: fleet.FeatureOption = None,
    adapter: fleet.AdapterOption = None,
    pick: fleet.PickOption = None,
    breaker: fleet.BreakerOption = None,
    keep_warm_seconds: fleet.KeepWarmOption = None,
    wake_limit_seconds: fleet.WakeLimitOption = None,
    retry_share: fleet.RetryShareOption = None,
    first_token_timeout_seconds: fleet.FirstTokenOption = None,
    idle_timeout_seconds: fleet.IdleOption = None,
    reply_timeout_seconds: fleet.ReplyOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a deployment; then add replicas to it and lead a route there."""
    given = fleet.deployment_fields(locals())
    answer = ControlClient(load(state_dir)).post("/deployments", fleet.collect(given))
    _print_one(answer, as_json=as_json)


@app.command("set")
def set_deployment(
    *,
    deployment: fleet.DeploymentArgument,
    name: Annotated[str | None, typer.Option(help="What people call it.")] = None,
    engine_model: Annotated[str | None, typer.Option(help="The name its engines know.")] = None,
    max_in_flight: fleet.MaxInFlightOption = None,
    context_tokens: fleet.ContextOption = None,
    feature: fleet.FeatureOption = None,
    adapter: fleet.AdapterOption = None,
    pick: fleet.PickOption = None,
    breaker: fleet.BreakerOption = None,
    keep_warm_seconds: fleet.KeepWarmOption = None,
    wake_limit_seconds: fleet.WakeLimitOption = None,
    retry_share: fleet.RetryShareOption = None,
    first_token_timeout_seconds: fleet.FirstTokenOption = None,
    idle_timeout_seconds: fleet.IdleOption = None,
    reply_timeout_seconds: fleet.ReplyOption = None,
    reset: fleet.ResetOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a deployment, without restart; what is not named stays as it is."""
    given = fleet.deployment_fields(locals())
    changes = fleet.collect(given, reset)
    client = ControlClient(load(state_dir))
    found = fleet.get_by_id_or_name(client, "deployments", deployment)
    _print_one(client.patch(f"/deployments/{found['id']}", changes), as_json=as_json)


@app.command("remove")
def remove_deployment(
    deployment: fleet.DeploymentArgument,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a deployment that has no replica and that no route leads to."""
    client = ControlClient(load(state_dir))
    found = fleet.get_by_id_or_name(client, "deployments", deployment)
    answer = client.delete(f"/deployments/{found['id']}")
    if as_json:
        print_json(answer)
    else:
        print(f"{answer['id']} ({answer['name']}) is removed.")


def _row(deployment: dict[str, Any]) -> dict[str, Any]:
    return {
        **deployment,
        **deployment["capabilities"],
        "replica_count": len(deployment["replicas"]),
    }


def _print_one(deployment: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(deployment)
        return
    print_table([_row(deployment)], _COLUMNS, empty="")
    settings = {
        "pick": fleet.write_settings(deployment["pick"]),
        "breaker": fleet.write_settings(deployment["breaker"]),
        "sleep": fleet.write_settings(deployment["sleep"]),
        "retry_share": deployment["retry_share"],
        "first_token_timeout_seconds": deployment["first_token_timeout_seconds"],
        "idle_timeout_seconds": deployment["idle_timeout_seconds"],
        "reply_timeout_seconds": deployment["reply_timeout_seconds"],
    }
    rows = [{"name": name, "value": value} for name, value in settings.items() if value is not None]
    if rows:
        print()
        print_table(rows, _SETTING_COLUMNS, empty="")
    print()
    print_replicas(deployment["replicas"])
