"""``forebay replicas``: the running servers of deployments, over the control API."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import quote

import typer

from gateway.cli import fleet_options as fleet
from gateway.cli.control_client import ControlClient
from gateway.cli.errors import CliError
from gateway.cli.options import JsonOption, StateDirOption, either, load
from gateway.cli.output import Columns, print_json, print_table
from gateway.cli.wait_idle import wait_until_idle

app = typer.Typer(no_args_is_help=True, help="Add, weigh, drain and remove replicas.")

_COLUMNS: Columns = (
    ("ID", "id"),
    ("DEPLOYMENT", "deployment"),
    ("ADDRESS", "base_url"),
    ("WEIGHT", "weight"),
    ("DRAINING", "draining"),
    ("LABELS", "labels"),
    ("AGENT", "agent_url"),
    ("STATE", "state"),
    ("WHY", "error"),
)
_WHEN_THERE = ("deployment", "state", "error")
_BASE_URL_HELP = "Where the engine is, like http://10.0.0.7:8000."


@app.command("list")
def list_replicas(
    *,
    deployment: Annotated[str | None, typer.Argument(help="Only replicas of this one.")] = None,
    only_deployment: Annotated[
        str | None, typer.Option("--deployment", metavar="DEPLOYMENT", help="As DEPLOYMENT.")
    ] = None,
    probe: Annotated[
        bool, typer.Option("--probe/--no-probe", help="Ask each engine now how it is.")
    ] = True,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List replicas by deployment, oldest first, with what their engines say now."""
    client = ControlClient(load(state_dir))
    wanted = either(deployment, only_deployment, "--deployment")
    if wanted is None:
        deployments = client.get("/deployments")["data"]
    else:
        deployments = [fleet.get_by_id_or_name(client, "deployments", wanted)]
    rows = [
        {**replica, "deployment": one["name"]} for one in deployments for replica in one["replicas"]
    ]
    if probe and rows:
        only = rows[0]["id"] if len(rows) == 1 else None
        engines = {one["replica_id"]: one for one in _probe(client, only)}
        for row in rows:
            engine = engines.get(row["id"], {})  # not there: it was added meanwhile
            row.update(state=engine.get("state"), error=engine.get("error"))
    if as_json:
        print_json(rows)
    else:
        print_replicas(rows)


@app.command("add")
def add_replica(
    *,
    deployment: fleet.DeploymentArgument,
    base_url: Annotated[str, typer.Argument(metavar="URL", help=_BASE_URL_HELP)],
    secret_file: fleet.SecretOption = None,
    weight: fleet.WeightOption = None,
    label: fleet.LabelOption = None,
    agent_url: fleet.AgentOption = None,
    draining: Annotated[
        bool | None, typer.Option("--draining", help="Gets nothing until it is undrained.")
    ] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a replica to a deployment; it gets requests within a second.

    Warns when the engine answers and does not list the deployment's model.
    """
    body = {
        "base_url": base_url,
        "secret": fleet.read_secret(secret_file),
        "weight": weight,
        "labels": fleet.parse_labels(label),
        "agent_url": agent_url,
        "is_draining": draining,
    }
    client = ControlClient(load(state_dir))
    owner = fleet.get_by_id_or_name(client, "deployments", deployment)
    added = client.post(f"/deployments/{owner['id']}/replicas", body)
    _print_one(added, as_json=as_json)
    _warn_of_other_models(client, added["id"])


@app.command("set")
def set_replica(
    *,
    replica_id: fleet.ReplicaArgument,
    base_url: Annotated[str | None, typer.Option(metavar="URL", help=_BASE_URL_HELP)] = None,
    secret_file: fleet.SecretOption = None,
    weight: fleet.WeightOption = None,
    label: fleet.LabelOption = None,
    agent_url: fleet.AgentOption = None,
    reset: fleet.ResetOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a replica, without restart; labels replace those there were."""
    given = {
        "base_url": base_url,
        "secret": fleet.read_secret(secret_file),
        "weight": weight,
        "labels": fleet.parse_labels(label),
        "agent_url": agent_url,
    }
    changes = fleet.collect(given, reset)
    answer = ControlClient(load(state_dir)).patch(_path(replica_id), changes)
    _print_one(answer, as_json=as_json)


@app.command("drain")
def drain_replica(
    *,
    replica_id: fleet.ReplicaArgument,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when the engine has nothing left to do.")
    ] = False,
    timeout_seconds: Annotated[
        float, typer.Option("--timeout-seconds", min=0, help="With --wait: give up after so long.")
    ] = 600.0,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send nothing new to a replica; what runs there goes on."""
    client = ControlClient(load(state_dir))
    answer = client.post(f"{_path(replica_id)}/drain")
    if wait:
        wait_until_idle(client, answer["id"], timeout_seconds=timeout_seconds)
    if as_json:
        print_json(answer)
    else:
        print(f"{answer['id']} is {'drained' if wait else 'draining'}.")


@app.command("undrain")
def undrain_replica(
    replica_id: fleet.ReplicaArgument,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send requests to a replica again."""
    answer = ControlClient(load(state_dir)).post(f"{_path(replica_id)}/undrain")
    if as_json:
        print_json(answer)
    else:
        print(f"{answer['id']} gets requests again.")


@app.command("remove")
def remove_replica(
    replica_id: fleet.ReplicaArgument,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a replica; what runs there ends by itself. The engine is not stopped."""
    answer = ControlClient(load(state_dir)).delete(_path(replica_id))
    if as_json:
        print_json(answer)
    else:
        print(f"{answer['id']} ({answer['base_url']}) is removed.")


def print_replicas(replicas: list[dict[str, Any]]) -> None:
    """Print replicas as a table."""
    columns = [
        column
        for column in _COLUMNS
        if column[1] not in _WHEN_THERE or any(column[1] in replica for replica in replicas)
    ]
    rows = [
        {
            **replica,
            "weight": fleet.write_number(replica["weight"]),
            "draining": "yes" if replica["is_draining"] else "no",
            "labels": fleet.write_settings(replica["labels"]),
        }
        for replica in replicas
    ]
    print_table(rows, columns, empty="No replicas.")


def _probe(client: ControlClient, replica_id: str | None) -> list[dict[str, Any]]:
    engines: list[dict[str, Any]] = client.get("/engines", replica_id=replica_id)["data"]
    return engines


def _warn_of_other_models(client: ControlClient, replica_id: str) -> None:
    """Say so if requests would find another model; an engine that is not up yet is no fault."""
    engines: list[dict[str, Any]] = []
    with suppress(CliError):  # the replica is added, whatever becomes of this
        engines = _probe(client, replica_id)
    for engine in engines:
        if engine["models"] and engine["state"] == "lacks_model":
            print(
                f"Warning: {engine['base_url']}{engine['error']}, not"
                f" {engine['engine_model']!r}. It is asked only when no other replica can be.",
                file=sys.stderr,
            )


def _path(replica_id: str) -> str:
    if "://" in replica_id:
        raise CliError(
            f"Name the replica by its id, not by its address {replica_id}; `forebay replicas list`"
            " shows both."
        )
    return f"/replicas/{quote(replica_id, safe='')}"


def _print_one(replica: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(replica)
    else:
        print_replicas([replica])
