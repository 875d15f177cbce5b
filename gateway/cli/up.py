"""``forebay up``: everything on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli import processes
from gateway.cli.options import StateDirOption
from gateway.settings import Settings


def up(
    *,
    state_dir: StateDirOption = None,
    host: processes.HostOption = None,
    port: processes.PortOption = None,
    admin_port: processes.AdminPortOption = None,
    workers: processes.WorkersOption = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            envvar="FOREBAY_READY_FILE",
            metavar="PATH",
            help="Write addresses and, at the first start, the secrets here as JSON.",
        ),
    ] = None,
) -> None:
    """Run everything on this machine: databases, engine, data plane, control plane, worker.

    Every option is also an environment variable, FOREBAY_STATE_DIR and so on.
    """
    from gateway.up.run import run_up

    settings = Settings.load(
        state_dir=state_dir, host=host, port=port, admin_port=admin_port, workers=workers
    )
    raise typer.Exit(run_up(settings, ready_file.absolute() if ready_file else None))
