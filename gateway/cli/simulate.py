"""``forebay simulate``: engines without a model, for tests of a fleet."""

from __future__ import annotations

from typing import Annotated

import typer

# The rest of the options, and the help, are the simulated engine's own parser's.
COMMAND_OPTIONS = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "add_help_option": False,
}


def simulate(
    context: typer.Context,
    *,
    replicas: Annotated[int, typer.Option(help="Engines, each on a port of its own.")] = 1,
    port: Annotated[int, typer.Option(help="Port of the first; 0: any free ones.")] = 8001,
    profile: Annotated[str, typer.Option(help="The GPU's pace: small, large.")] = "small",
    seed: Annotated[int, typer.Option(help="Of output lengths and faults.")] = 0,
    ready_file: Annotated[
        str | None, typer.Option(metavar="PATH", help="Write base URLs and pid there as JSON.")
    ] = None,
) -> None:
    """Run engines with vLLM's interface and timing, and no model. --help lists all options."""
    from backends.simulated.__main__ import main

    arguments = [f"--replicas={replicas}", f"--port={port}", f"--profile={profile}"]
    arguments += [f"--seed={seed}", "--print-urls"]
    if ready_file is not None:
        arguments.append(f"--ready-file={ready_file}")
    code = main([*arguments, *context.args], prog="forebay simulate", profile="small", port=8001)
    raise typer.Exit(code)
