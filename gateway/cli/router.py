"""``forebay router``: train, evaluate, calibrate and explain the prompt classifier, all offline.

Publishing what was trained is in ``weights.py``.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli import shadow
from gateway.cli import weights as uploaded
from gateway.cli.calibrate_cascade import calibrate_cascade
from gateway.cli.errors import CliError
from gateway.cli.judged_figures import print_figures, show_together
from gateway.cli.output import print_json
from gateway.cli.router_files import choose_weights, load_weights, or_refuse, read_prompts

app = typer.Typer(
    no_args_is_help=True, help="The prompt classifier: train it, judge it, put it in effect."
)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A .csv, .jsonl or .parquet.")]
WeightsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Weights; default: those that are shipped.")
]
DatasetOption = Annotated[
    list[str] | None, typer.Option("--dataset", help="Only this dataset; may be repeated.")
]
PairOption = Annotated[
    str | None, typer.Option(metavar="'SMALL / LARGE'", help="Only this pair of models.")
]
SplitOption = Annotated[
    list[str] | None, typer.Option("--split", help="Only rows of this split; may be repeated.")
]
_HELD_OUT = ["test", "ood"]


@app.command()
def train(
    file: FileArgument,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the weights go.")],
    name: Annotated[str, typer.Option(help="What the weights are called.")] = "own",
    dataset: DatasetOption = None,
    pair: PairOption = None,
    penalty: Annotated[
        list[float] | None, typer.Option(help="Regularisation to try; may be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option()] = 20261130,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="JSON.")] = None,
) -> None:
    """Train on the rows whose split is ``train``; no other row is looked at. Needs torch.

    A file with several pairs of models makes one part of the weights for each.
    """
    _need_learned("torch")
    from routing.learned.make_weights import make_weights
    from routing.learned.train import PENALTIES, Plan

    if not all(0 <= one < inf for one in penalty or ()):
        raise CliError("--penalty must be a finite number, 0 or more.")
    rows = read_prompts(file, dataset, pair, ["train"])
    plan = Plan(penalties=tuple(penalty or PENALTIES), seed=seed)
    _check_writable(out)  # before the minutes of training, not after
    made = or_refuse(make_weights, rows, name=name, plan=plan, say=_say)
    if not made.summary["has_learned"]:
        _say(f"warning: {made.summary['note']}")
    _write(out, made.data)
    _write_json(report, made.summary)
    print_json(made.summary)


@app.command()
def evaluate(
    file: FileArgument,
    *,
    weights: WeightsOption = None,
    dataset: DatasetOption = None,
    pair: PairOption = None,
    split: SplitOption = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="JSON.")] = None,
    plots: Annotated[
        Path | None, typer.Option(metavar="DIRECTORY", help="One SVG a line of the table.")
    ] = None,
) -> None:
    """Judge the classifier beside random mix, prompt length, category, each model and an oracle.

    Without ``--split``, on the rows of ``test`` and ``ood``; without ``--weights``, with those that are
    shipped for the rows' pair of models. Needs numpy.
    """
    _need_learned("numpy")
    from routing.learned.evaluate import evaluate as judge
    from routing.learned.plot import draw_curves

    rows = read_prompts(file, dataset, pair, None)
    wanted = split or _HELD_OUT
    judged = [row for row in rows if row.split in wanted]
    if not judged:
        raise CliError(f"no rows of the split {' or '.join(wanted)}")
    found = judge(
        load_weights(weights),
        judged,
        fitted_on=[row for row in rows if row.split == "train"],
        by_pair=choose_weights(weights, (row.pair for row in judged), _say),
    )
    _write_json(report, found)
    if plots is not None:
        _make_directory(plots)
        for one, entry in show_together(found)["datasets"].items():
            safe = "".join(sign if sign.isalnum() or sign in "-_" else "_" for sign in one)
            _write(plots / f"{safe}.svg", draw_curves(one, entry).encode())
    print_figures(found)


@app.command()
def calibrate(
    file: FileArgument,
    *,
    large_share: Annotated[
        float | None, typer.Option(min=0, max=1, help="At most this share of large calls.")
    ] = None,
    cost: Annotated[
        float | None, typer.Option(min=0, max=1, help="At most this part of the cost of all large.")
    ] = None,
    quality: Annotated[
        float | None, typer.Option(min=0, max=1, help="At least this part of the large quality.")
    ] = None,
    times_dearer: Annotated[float, typer.Option(help="Large to small.")] = 100.0,
    weights: WeightsOption = None,
    dataset: DatasetOption = None,
    pair: PairOption = None,
    split: SplitOption = None,
) -> None:
    """Find the threshold that meets a target, on rows that were not trained on. Needs numpy.

    Without ``--split``, on the rows of ``test`` and ``ood``; without ``--weights``, by those that are
    shipped for the rows' pair of models.
    """
    _need_learned("numpy")
    from routing.learned.calibrate import Target
    from routing.learned.calibrate import calibrate as find

    rows = read_prompts(file, dataset, pair, split or _HELD_OUT)
    if any(row.split == "train" for row in rows):
        _say("warning: weights that were trained on these rows look better on them than they are")
    target = Target(large_share, cost, quality, times_dearer)
    chosen = choose_weights(weights, (row.pair for row in rows), _say)
    used = {one.digest: one for one in chosen.values()}
    if len(used) > 1:
        raise CliError("the rows are of several pairs of models: choose one with --pair")
    (predictor,) = used.values()
    found = or_refuse(find, predictor, rows, target)
    print_json({"weights": predictor.header.name, **asdict(found)})


@app.command()
def explain(
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")],
    *,
    threshold: Annotated[float | None, typer.Option(help="Also tell which tier serves.")] = None,
    weights: WeightsOption = None,
) -> None:
    """Show what the classifier makes of a prompt, and why."""
    from routing.complexity.explain import explain_prompt

    text = sys.stdin.read() if prompt == "-" else prompt
    found = explain_prompt(load_weights(weights), text)
    if threshold is not None:
        found["tier"] = "large" if found["score"] >= threshold else "small"
    print_json(found)


app.command("calibrate-cascade")(calibrate_cascade)
app.command("publish")(uploaded.publish)
app.command("rollback")(uploaded.rollback)
app.command("list")(uploaded.list_weights)
app.add_typer(shadow.app, name="shadow")


def _need_learned(module: str) -> None:
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise CliError(f"this needs {module}: pip install forebay[train]")


def _write_json(path: Path | None, content: dict[str, Any]) -> None:
    if path is not None:
        _write(path, (json.dumps(content, indent=2) + "\n").encode())


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from error


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(f"{path} cannot be made: {error.strerror}") from error


def _check_writable(path: Path) -> None:
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise CliError(f"{path} cannot be written")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
