"""``forebay keys``: API keys over the control API."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from gateway.cli.control_client import ControlClient
from gateway.cli.options import JsonOption, StateDirOption, either, load, parse_time
from gateway.cli.output import Columns, print_json, print_table

app = typer.Typer(no_args_is_help=True, help="Create, list, revoke and rotate API keys.")

_COLUMNS: Columns = (
    ("ID", "id"),
    ("NAME", "name"),
    ("PROJECT", "project"),
    ("SECRET", "secret_hint"),
    ("STATE", "state"),
    ("ROUTES", "routes"),
    ("EXPIRES", "expires_at"),
    ("CREATED", "created_at"),
)
KeyId = Annotated[str, typer.Argument(metavar="KEY_ID", help="The key's id, key_….")]


@app.command("create")
def create(
    *,
    name: Annotated[str, typer.Argument(help="What people call the key.")],
    project: Annotated[
        str | None, typer.Option(help="Project id; not needed when there is one project.")
    ] = None,
    route: Annotated[
        list[str] | None, typer.Option(help="Route that the key may use; repeat it. Default: all.")
    ] = None,
    expires_at: Annotated[str | None, typer.Option(metavar="TIME", help="ISO 8601.")] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create an API key and show its secret, once."""
    body = {
        "name": name,
        "project_id": project,
        "allowed_routes": route or None,
        "expires_at": parse_time(expires_at, "--expires-at"),
    }
    _show_issued(ControlClient(load(state_dir)).post("/keys", body), as_json=as_json)


@app.command("list")
def list_keys(
    *,
    project: Annotated[str | None, typer.Argument(help="Only this project's.")] = None,
    only_project: Annotated[str | None, typer.Option("--project", help="As PROJECT.")] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List API keys, newest first, also those that open nothing any more."""
    wanted = either(project, only_project, "--project")
    answer = ControlClient(load(state_dir)).get("/keys", project_id=wanted)
    if as_json:
        print_json(answer["data"])
        return
    rows = [{**key, "routes": _routes(key)} for key in answer["data"]]
    print_table(rows, _COLUMNS, empty="No API keys.")


@app.command("revoke")
def revoke(key_id: KeyId, state_dir: StateDirOption = None, as_json: JsonOption = False) -> None:
    """Revoke a key for good; it is refused within a second."""
    _change(key_id, "revoke", state_dir, as_json=as_json)


@app.command("block")
def block(key_id: KeyId, state_dir: StateDirOption = None, as_json: JsonOption = False) -> None:
    """Refuse a key until it is unblocked."""
    _change(key_id, "block", state_dir, as_json=as_json)


@app.command("unblock")
def unblock(key_id: KeyId, state_dir: StateDirOption = None, as_json: JsonOption = False) -> None:
    """Accept a blocked key again."""
    _change(key_id, "unblock", state_dir, as_json=as_json)


@app.command("rotate")
def rotate(
    key_id: KeyId,
    grace_seconds: Annotated[
        int, typer.Option(min=0, help="How long the old secret goes on working.")
    ] = 0,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace a key by one with a new secret, shown once; its limits and budgets go on.

    A key is rotated once: refused for one that was replaced already, naming the key to rotate.
    """
    client = ControlClient(load(state_dir))
    answer = client.post(f"/keys/{key_id}/rotate", {"grace_seconds": grace_seconds})
    _show_issued(answer, as_json=as_json)


def _change(key_id: str, verb: str, state_dir: str | None, *, as_json: bool) -> None:
    answer = ControlClient(load(state_dir)).post(f"/keys/{key_id}/{verb}")
    if as_json:
        print_json(answer)
    else:
        print(f"{answer['id']} ({answer['name']}) is {answer['state']}.")


def _show_issued(answer: dict[str, Any], *, as_json: bool) -> None:
    """Print the secret alone on stdout, so that ``SECRET=$(forebay keys create …)`` works."""
    if as_json:
        print_json(answer)
        return
    about = f"{answer['id']} ({answer['name']}, project {answer['project']})"
    print(f"Created {about}. Its secret, shown once:", file=sys.stderr)
    print(answer["secret"])


def _routes(key: dict[str, Any]) -> Any:
    return "all" if key["allowed_routes"] is None else key["allowed_routes"]
