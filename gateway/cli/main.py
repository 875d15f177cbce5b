"""The ``forebay`` command. Commands import what they need when they run, not before."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli import (
    billing,
    budgets,
    deployments,
    engine,
    estimate,
    keys,
    limits,
    plan,
    prices,
    processes,
    reconcile,
    replicas,
    report,
    router,
    routes,
    setup,
    simulate,
    usage,
)
from gateway.cli import credits as credit_commands
from gateway.cli.errors import CliError
from gateway.cli.options import StateDirOption
from gateway.settings import Settings, SettingsError

EXIT_REFUSED = 2

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Managed inference gateway and billing for your own vLLM GPUs.",
)


@app.command()
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


app.add_typer(keys.app, name="keys")
app.add_typer(deployments.app, name="deployments")
app.add_typer(replicas.app, name="replicas")
app.add_typer(routes.app, name="routes")
app.add_typer(router.app, name="router")
app.add_typer(prices.app, name="prices")
app.add_typer(limits.app, name="limits")
app.add_typer(budgets.app, name="budgets")
app.add_typer(credit_commands.app, name="credits")
app.add_typer(billing.app, name="billing")
app.add_typer(engine.app, name="engine")
app.add_typer(estimate.app, name="estimate")
app.add_typer(report.app, name="report")
app.command("plan")(plan.plan)
app.command("gpus")(plan.show_gpus)
app.command("usage")(usage.show_usage)
app.command("setup")(setup.setup)
app.command("reconcile")(reconcile.reconcile)
app.command("simulate", context_settings=simulate.SETTINGS, add_help_option=False)(
    simulate.simulate
)
for command in (
    processes.migrate,
    processes.worker,
    processes.controlplane,
    processes.dataplane,
):
    app.command(command.__name__)(command)


@app.command()
def version() -> None:
    """Print the version."""
    from gateway.cli.version import get_version

    print(get_version())


def main() -> None:
    """Run the command line; an expected failure is one sentence on stderr and exit code 2."""
    try:
        app()
    except (SettingsError, CliError) as error:
        print(f"forebay: {error}", file=sys.stderr)
        sys.exit(EXIT_REFUSED)


if __name__ == "__main__":
    main()
