"""Options that many commands share, and the values that several of them read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from gateway.cli.errors import CliError
from gateway.settings import Settings

StateDirOption = Annotated[
    str | None,
    typer.Option("--state-dir", metavar="DIR", help="State directory (FOREBAY_STATE_DIR)."),
]
FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="ISO 8601, inclusive. Default: 30 days ago."),
]
ToOption = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="ISO 8601, exclusive. Default: now.")
]
ScopeArgument = Annotated[str | None, typer.Argument(help="Only of this scope.")]
ScopeOption = Annotated[str | None, typer.Option("--scope", help="As SCOPE.")]
ScopeIdArgument = Annotated[str | None, typer.Argument(help="Only of this id.")]
ScopeIdOption = Annotated[str | None, typer.Option("--of", help="As SCOPE_ID.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def load(state_dir: str | None) -> Settings:
    """Return the settings. Raises :class:`gateway.settings.SettingsError`."""
    return Settings.load(state_dir=state_dir)


def either(argument: str | None, option: str | None, name: str) -> str | None:
    """Return what was given as an argument or as the option ``name``. Raises :class:`CliError` for two."""
    if argument is not None and option is not None and argument != option:
        raise CliError(f"{argument!r} and {name} {option!r} exclude each other.")
    return option if argument is None else argument


def parse_time(text: str | None, option: str) -> str | None:
    """Return an ISO 8601 time with its zone; without one it is UTC. Raises :class:`CliError`."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise CliError(
            f"{option} {text!r} is no time; write it like 2030-01-31 or 2030-01-31T12:00:00+02:00."
        ) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()
