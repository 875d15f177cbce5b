"""Which version this is."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path

import gateway


def get_version() -> str:
    """Return the version: the installed distribution's, or the one that the checkout declares."""
    try:
        return version_of("forebay")
    except PackageNotFoundError:
        project = Path(gateway.__file__).resolve().parent.parent / "pyproject.toml"
        with project.open("rb") as file:
            return str(tomllib.load(file)["project"]["version"])


def show_version() -> None:
    """Print the version."""
    print(get_version())
