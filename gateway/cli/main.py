"""The ``forebay`` command. A command's module is imported when the command is named, not before."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

EXIT_REFUSED = 2
_VERSION_OPTION = "--version"
EXIT_INTERRUPTED = 130  # as a shell has it: 128 and the number of SIGINT

# Of each command or group of commands: its module in this package, and the name in that.
_PLACES = {
    "up": "up:up",
    "organizations": "organizations:app",
    "keys": "keys:app",
    "deployments": "deployments:app",
    "replicas": "replicas:app",
    "routes": "routes:app",
    "router": "router:app",
    "prices": "prices:app",
    "limits": "limits:app",
    "budgets": "budgets:app",
    "credits": "credits:app",
    "billing": "billing:app",
    "engine": "engine:app",
    "estimate": "estimate:app",
    "report": "report:app",
    "bench": "bench:app",
    "plan": "plan:plan",
    "gpus": "plan:show_gpus",
    "usage": "usage:show_usage",
    "setup": "setup:setup",
    "reconcile": "reconcile:reconcile",
    "simulate": "simulate:simulate",
    "migrate": "processes:migrate",
    "worker": "processes:worker",
    "controlplane": "processes:controlplane",
    "dataplane": "processes:dataplane",
    "version": "version:show_version",
}


def make_app(only: str | None = None) -> typer.Typer:
    """Return the application with all commands, or with one: reading all takes half a second."""
    import typer

    from gateway.cli.version import begin

    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Managed inference gateway and billing for your own vLLM GPUs.",
    )
    app.callback()(begin)  # without one an application of one command would be that command
    for name, place in _PLACES.items():
        if only is None or name == only:
            _add(app, name, place)
    return app


def _add(app: typer.Typer, name: str, place: str) -> None:
    module_name, _, attribute = place.partition(":")
    module = import_module(f"gateway.cli.{module_name}")
    found = getattr(module, attribute)
    if isinstance(found, type(app)):
        app.add_typer(found, name=name)
    else:
        options: dict[str, Any] = getattr(module, "COMMAND_OPTIONS", {})
        app.command(name, **options)(found)


def main() -> None:
    """Run the command line; an expected failure is one sentence on stderr and exit code 2.

    Ctrl-C ends what has nothing to put in order without a word, also while modules are imported.
    """
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _run() -> None:
    from gateway.cli.errors import CliError
    from gateway.settings import SettingsError

    named = next(iter(sys.argv[1:]), None)
    if named == _VERSION_OPTION:
        named = "version"
    try:
        make_app(named if named in _PLACES else None)()
    except (SettingsError, CliError) as error:
        print(f"forebay: {error}", file=sys.stderr)
        sys.exit(EXIT_REFUSED)


if __name__ == "__main__":
    main()
