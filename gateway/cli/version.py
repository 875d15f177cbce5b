"""Which version this is."""

from __future__ import annotations

from typing import Annotated

import typer


def get_version() -> str:
    """Return the version: the installed distribution's, or the one that the checkout declares."""
    import tomllib  # each command imports this module: what it needs is imported when it runs
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of
    from pathlib import Path

    import gateway

    try:
        return version_of("forebay")
    except PackageNotFoundError:
        project = Path(gateway.__file__).resolve().parent.parent / "pyproject.toml"
        with project.open("rb") as file:
            return str(tomllib.load(file)["project"]["version"])


def show_version() -> None:
    """Print the version."""
    print(get_version())


def _show_and_end(is_wanted: bool) -> None:
    if is_wanted:
        show_version()
        raise typer.Exit


def begin(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_and_end, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Take what stands before the command's name."""
