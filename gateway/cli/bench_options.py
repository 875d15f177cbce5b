"""The options of ``forebay bench sweep``, and the plan that they become."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.errors import CliError

if TYPE_CHECKING:
    from backends.sweep.sweep import SweepPlan

UrlArgument = Annotated[
    str, typer.Argument(metavar="URL", help="Of an OpenAI-compatible server, with or without /v1.")
]
ModelOption = Annotated[str, typer.Option("--model", help="The model's name there.")]
CompletionsOption = Annotated[
    bool, typer.Option("--completions", help="/completions instead of /chat/completions.")
]
KeyEnvOption = Annotated[
    str,
    typer.Option("--key-env", metavar="NAME", help="The environment variable that has the key."),
]
KeyFileOption = Annotated[
    Path | None, typer.Option("--key-file", metavar="FILE", help="A file that has the key.")
]
ConcurrencyOption = Annotated[
    str | None,
    typer.Option("--concurrency", metavar="LOADS", help="Clients: 1,2,4 or 1..256 (default)."),
]
RateOption = Annotated[
    str | None,
    typer.Option("--rate", metavar="LOADS", help="Requests/s of an open loop: 1,2,4 or 0.5..64."),
]
GrowthOption = Annotated[float, typer.Option("--growth", help="From a load of A..B to the next.")]
LengthsOption = Annotated[
    Path | None,
    typer.Option(
        "--lengths",
        metavar="FILE",
        help="input_tokens,output_tokens of requests: CSV or JSON lines.",
    ),
]
LedgerOption = Annotated[
    bool, typer.Option("--ledger", help="Lengths of recorded requests, over the control API.")
]
LedgerFromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Of the ledger. Default: seven days ago."),
]
LedgerToOption = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="Of the ledger. Default: now.")
]
RouteOption = Annotated[
    str | None, typer.Option("--route", help="Of the ledger: asked for this, or served by it.")
]
DeploymentOption = Annotated[
    str | None, typer.Option("--deployment", help="Of the ledger: only of this.")
]
ProjectOption = Annotated[
    str | None, typer.Option("--project", help="Of the ledger: only of this (id).")
]
InputOption = Annotated[int, typer.Option("--input-tokens", min=1, help="Of every prompt.")]
OutputOption = Annotated[int, typer.Option("--output-tokens", min=1, help="Of every answer.")]
SharedOption = Annotated[
    float,
    typer.Option("--shared-prefix", min=0, max=1, help="Share of the input that all have alike."),
]
ReuseOption = Annotated[
    bool,
    typer.Option("--reuse-prompts", help="The same prompts in each run; a cache may know them."),
]
SecondsOption = Annotated[float, typer.Option("--seconds", min=0.1, help="Of a step, at least.")]
RequestsOption = Annotated[int, typer.Option("--requests", min=1, help="Of a step, at least.")]
MaxSecondsOption = Annotated[
    float, typer.Option("--max-seconds", min=0.1, help="Of a step, at most; and of each wait.")
]
WarmUpOption = Annotated[
    float, typer.Option("--warm-up", min=0, metavar="SECONDS", help="Of a step, not measured.")
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="Of one request.")
]
RefineOption = Annotated[
    int, typer.Option("--refine", min=0, max=4, help="More steps near the knee.")
]
NoStopOption = Annotated[
    bool, typer.Option("--no-stop", help="Hold all loads, over-saturated or not.")
]
TtftOption = Annotated[float | None, typer.Option("--ttft-ms", help="SLO: the longest TTFT.")]
TpotOption = Annotated[float | None, typer.Option("--tpot-ms", help="SLO: the longest TPOT.")]
E2eOption = Annotated[float | None, typer.Option("--e2e-ms", help="SLO: the longest E2E.")]
LagOption = Annotated[
    float,
    typer.Option(
        "--max-client-lag-ms", min=0.1, help="p95 of how late we may be, before we blame ourselves."
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Of lengths, words and arrivals.")]
NameOption = Annotated[
    str | None, typer.Option("--name", help="Of the capacity profile; default: the model's.")
]
GpusOption = Annotated[int, typer.Option("--gpus", min=1, help="That serve it.")]
SameModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="The sweeps are of one model: this one."),
]
JoinedGpusOption = Annotated[
    int | None, typer.Option("--gpus", min=1, help="That serve it; default: as the sweeps say.")
]
OutOption = Annotated[
    Path,
    typer.Option("--out", metavar="DIRECTORY", help="For report.json, plot.svg and capacity.json."),
]


def make_plan(
    *,
    concurrency: str | None,
    rate: str | None,
    growth: float,
    seconds: float,
    requests: int,
    max_seconds: float,
    warm_up: float,
    refine: int,
    no_stop: bool,
    slo: tuple[float | None, float | None, float | None],
    max_lag_ms: float,
    seed: int,
) -> SweepPlan:
    """Return the plan. Raises :class:`CliError`, and SweepError for loads that cannot be read."""
    from backends.sweep.arrivals import parse_loads, whole_loads
    from backends.sweep.figures import Slo
    from backends.sweep.sweep import SweepPlan

    if concurrency is not None and rate is not None:
        raise CliError("Give --concurrency or --rate, not both.")
    loads = parse_loads(rate or concurrency or "1..256", growth)
    return SweepPlan(
        is_open=rate is not None,
        loads=tuple(loads if rate else whole_loads(loads)),
        seconds=seconds,
        requests=requests,
        max_seconds=max(max_seconds, seconds),
        warm_up_seconds=warm_up,
        refine=refine,
        slo=Slo(*slo),
        max_lag_ms=max_lag_ms,
        stops_early=not no_stop,
        seed=seed,
    )


def find_secret(variable: str, file: Path | None) -> str | None:
    """Return the key of the file, or of the environment; None: the server wants none."""
    from gateway.cli.costing_files import read_text

    secret = (read_text(file) if file else os.environ.get(variable, "")).strip()
    if not (secret.isascii() and secret.isprintable()):
        raise CliError("The key has characters that no HTTP header can carry.")
    return secret or None
