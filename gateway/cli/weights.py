"""``forebay router publish | rollback | list``: weights over the control API."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.control_client import ControlClient
from gateway.cli.errors import CliError
from gateway.cli.options import JsonOption, StateDirOption, load
from gateway.cli.output import Columns, print_json, print_table
from gateway.snapshot.weights import NAME_PATTERN

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The classifier's name.")]
_COLUMNS: Columns = (
    ("NAME", "name"),
    ("VERSION", "version"),
    ("IN EFFECT", "in_effect"),
    ("SHA-256", "short_sha256"),
    ("BYTES", "size_bytes"),
    ("LEARNED FROM", "datasets"),
    ("CREATED", "created_at"),
)


def publish(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Weights that train made.")],
    *,
    name: Annotated[
        str | None, typer.Option(help="The classifier's name; default: that in the weights.")
    ] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Upload weights; every data plane swaps to them at once."""
    from routing.complexity.predictor import WeightsError, decode_weights

    try:
        data = file.read_bytes()
        name = decode_weights(data).header.name if name is None else name
    except OSError as error:
        raise CliError(f"{file} cannot be read: {error.strerror}") from error
    except WeightsError as error:
        raise CliError(f"{file}: {error}") from error
    _check_name(name, "--name")
    client = ControlClient(load(state_dir))
    answer = client.upload(f"/classifiers/{name}/versions", data)
    _show(answer, as_json=as_json)


def rollback(
    name: NameArgument,
    *,
    version: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="To this version; default: the one before. 0: what is shipped under the name.",
        ),
    ] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put earlier weights in effect again, or with --version later ones."""
    _check_name(name, "NAME")
    client = ControlClient(load(state_dir))
    answer = client.post(f"/classifiers/{name}/rollback", {"version": version})
    _show(answer, as_json=as_json)


def list_weights(state_dir: StateDirOption = None, as_json: JsonOption = False) -> None:
    """List uploaded weights, all versions."""
    answer = ControlClient(load(state_dir)).get("/classifiers")
    if as_json:
        print_json(answer["data"])
    else:
        print_table([_line(one) for one in answer["data"]], _COLUMNS, empty="No weights.")


def _check_name(name: str, option: str) -> None:
    """Refuse what cannot stand in the path: it would be another address."""
    if re.search(NAME_PATTERN, name) is None or not name.isprintable():
        raise CliError(
            f"{option}: {name!r} is no classifier's name: it has letters, digits, '.', '_' and '-',"
            " begins with a letter or digit, and has 100 characters at most."
        )


def _show(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    elif not answer["version"]:
        print(f"{answer['name']}: the shipped weights are in effect.")
    else:
        print(f"{answer['name']}: version {answer['version']} is in effect.")


def _line(one: dict[str, Any]) -> dict[str, Any]:
    return {
        **one,
        "in_effect": "yes" if one["is_current"] else "",
        "short_sha256": one["sha256"][:12],
        "datasets": one["figures"].get("datasets"),
        "created_at": "shipped" if one["created_at"] is None else one["created_at"][:16],
    }
