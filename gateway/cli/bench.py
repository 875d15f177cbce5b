"""``forebay bench``: what an engine can carry, measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli import bench_options as options
from gateway.cli.errors import CliError
from gateway.cli.options import JsonOption, StateDirOption
from gateway.cli.output import Columns, print_json, print_table

if TYPE_CHECKING:
    from backends.sweep.lengths import Lengths
    from gateway.cli.bench_run import Job

app = typer.Typer(no_args_is_help=True, help="Measure what an engine can carry.")

_STEPS: Columns = (
    ("LOAD", "load"),
    ("REQUESTS/S", "requests"),
    ("OUT TOKENS/S", "output"),
    ("GOOD/S", "good"),
    ("TTFT p50", "ttft_p50"),
    ("p95", "ttft_p95"),
    ("p99", "ttft_p99"),
    ("ITL p95", "itl_p95"),
    ("TPOT p95", "tpot_p95"),
    ("E2E p95", "e2e_p95"),
    ("FAILED", "failed"),
)
_LENGTHS: Columns = (
    ("TOKENS", "side"),
    ("MEAN", "mean"),
    *((name.upper(), name) for name in ("p50", "p95", "p99", "longest")),
)
ReportArgument = Annotated[Path, typer.Argument(metavar="REPORT", help="A sweep's report.json.")]
FileOption = Annotated[Path, typer.Option("--out", metavar="FILE", help="Where it goes.")]


@app.command()
def sweep(
    url: options.UrlArgument,
    *,
    model: options.ModelOption,
    completions: options.CompletionsOption = False,
    key_env: options.KeyEnvOption = "OPENAI_API_KEY",
    key_file: options.KeyFileOption = None,
    concurrency: options.ConcurrencyOption = None,
    rate: options.RateOption = None,
    growth: options.GrowthOption = 2.0,
    lengths: options.LengthsOption = None,
    ledger: options.LedgerOption = False,
    from_: options.LedgerFromOption = None,
    to: options.LedgerToOption = None,
    route: options.RouteOption = None,
    deployment: options.DeploymentOption = None,
    project: options.ProjectOption = None,
    input_tokens: options.InputOption = 512,
    output_tokens: options.OutputOption = 128,
    shared_prefix: options.SharedOption = 0.0,
    reuse_prompts: options.ReuseOption = False,
    seconds: options.SecondsOption = 20.0,
    requests: options.RequestsOption = 100,
    max_seconds: options.MaxSecondsOption = 120.0,
    warm_up: options.WarmUpOption = 5.0,
    timeout: options.TimeoutOption = 300.0,
    refine: options.RefineOption = 2,
    no_stop: options.NoStopOption = False,
    ttft_ms: options.TtftOption = None,
    tpot_ms: options.TpotOption = None,
    e2e_ms: options.E2eOption = None,
    max_client_lag_ms: options.LagOption = 10.0,
    seed: options.SeedOption = 0,
    name: options.NameOption = None,
    gpus: options.GpusOption = 1,
    out: options.OutOption = Path("sweep"),
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Drive a server at rising load; find its knee; write a report, a plot, a capacity profile."""
    given = dict(locals())
    from backends.sweep.errors import SweepError
    from gateway.cli.bench_run import run_job

    try:
        report = run_job(_make_job(given))
    except SweepError as error:
        raise CliError(f"{url}: {error}." if "://" in url else f"{error}.") from error
    _show(report, as_json=as_json)


@app.command()
def lengths(
    *,
    from_: options.LedgerFromOption = None,
    to: options.LedgerToOption = None,
    route: options.RouteOption = None,
    deployment: options.DeploymentOption = None,
    project: options.ProjectOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="To take to where --lengths reads it."),
    ] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how long recorded requests and their answers were; write it for a sweep elsewhere."""
    from gateway.cli.bench_files import LedgerLengths, ask_lengths, write_json

    found = ask_lengths(LedgerLengths(from_, to, route, deployment, project, state_dir))
    if out is not None:
        write_json(out, found)
    if as_json:
        print_json(found)
    elif out is None:
        _show_lengths(found)


@app.command()
def plot(report: ReportArgument, *, out: FileOption = Path("plot.svg")) -> None:
    """Draw a sweep's report again, as SVG."""
    from gateway.cli.bench_files import read_report, write_whole
    from gateway.cli.plot_sweep import draw_sweep

    content = read_report(report)
    if not content["steps"]:
        raise CliError(f"{report} has no steps.")
    write_whole(out, draw_sweep(content))


@app.command()
def profile(
    reports: Annotated[list[Path], typer.Argument(metavar="REPORT...", help="Of one deployment.")],
    *,
    name: options.NameOption = None,
    model: options.SameModelOption = None,
    gpus: options.JoinedGpusOption = None,
    out: FileOption = Path("capacity.json"),
) -> None:
    """Make one capacity profile of several sweeps, whose mixes tell input and output apart."""
    from backends.sweep.errors import SweepError
    from backends.sweep.report import write_capacity
    from gateway.cli.bench_files import read_report, write_json

    contents = [read_report(path) for path in reports]
    try:
        found = write_capacity(contents, name=name, gpus=gpus, model=model)
    except SweepError as error:
        raise CliError(f"{error}.") from error
    write_json(out, found)


def _make_job(given: dict[str, Any]) -> Job:
    """Return what is measured. Raises :class:`CliError`, and SweepError for loads and lengths."""
    from gateway.cli.bench_run import Job

    return Job(
        url=given["url"],
        model=given["model"],
        is_chat=not given["completions"],
        secret=options.find_secret(given["key_env"], given["key_file"]),
        plan=options.make_plan(**_plan_options(given)),
        lengths=_choose_lengths(given),
        shared_prefix=given["shared_prefix"],
        reuses_prompts=given["reuse_prompts"],
        timeout_seconds=given["timeout"],
        profile_name=given["name"] or given["model"],
        gpus=given["gpus"],
        directory=given["out"],
    )


def _plan_options(given: dict[str, Any]) -> dict[str, Any]:
    names = ("concurrency", "rate", "growth", "seconds", "requests", "max_seconds", "warm_up")
    return {
        **{name: given[name] for name in (*names, "refine", "no_stop", "seed")},
        "slo": (given["ttft_ms"], given["tpot_ms"], given["e2e_ms"]),
        "max_lag_ms": given["max_client_lag_ms"],
    }


def _choose_lengths(given: dict[str, Any]) -> Lengths:
    from gateway.cli.bench_files import LedgerLengths, draw_lengths, make_lengths, read_lengths

    names = ("from_", "to", "route", "deployment", "project", "state_dir")
    source = LedgerLengths(**{name: given[name] for name in names})
    if given["lengths"] is not None and given["ledger"]:
        raise CliError("Give --lengths or --ledger, not both.")
    if source.is_chosen and not given["ledger"]:
        raise CliError(
            "--from, --to, --route, --deployment and --project choose requests of the ledger:"
            " give --ledger."
        )
    if given["lengths"] is not None:
        return read_lengths(given["lengths"])
    if given["ledger"]:
        return draw_lengths(source)
    return make_lengths([(given["input_tokens"], given["output_tokens"], 1)], "the options")


def _show_lengths(found: dict[str, Any]) -> None:
    rows = [
        {"side": name, **found[f"{name}_tokens"], "mean": f"{found[f'{name}_tokens']['mean']:.1f}"}
        for name in ("input", "output")
    ]
    print_table(rows, _LENGTHS, empty="")
    print()
    print(f"{found['requests']} requests, in {len(found['data'])} pairs of lengths.")
    if found["correlation"] is not None:
        print(f"Input and output correlate by {found['correlation']:.2f}.")
    print(f"{found['cached_share']:.1%} of the input was in a prefix cache.")
    if found["left_out_requests"]:
        print(f"Note: {found['left_out_requests']} more have no count of input or of output.")
    if found["read_share"] < 1:
        print(f"Note: a sample was read, {found['read_share']:.2%} of these days' requests.")


def _show(report: dict[str, Any], *, as_json: bool) -> None:
    from backends.sweep.report import describe_knee

    if as_json:
        print_json(report)
        return
    steps = sorted(report["steps"], key=lambda step: float(step["load"]))
    print_table([_row(step) for step in steps], _STEPS, empty="No step was measured.")
    print()
    print(describe_knee(report["knee"], report["loop"]))
    print(f"The sweep ended: {report['stopped_because']}.")
    for note in report["notes"]:
        print(f"Note: {note}.")


def _row(step: dict[str, Any]) -> dict[str, Any]:
    spans = {
        f"{figure}_{part}": format(step[f"{figure}_ms"][part]["value"], ".1f")
        for figure in ("ttft", "itl", "tpot", "e2e")
        for part in ("p50", "p95", "p99")
        if part in step[f"{figure}_ms"]
    }
    return {
        "load": format(step["load"], "g"),
        "requests": format(step["requests_per_second"]["value"], ".2f"),
        "output": format(step["output_tokens_per_second"]["value"], ".0f"),
        "good": format(step["goodput_requests_per_second"]["value"], ".2f"),
        "failed": step["requests"] - step["completed"],
        **spans,
    }
