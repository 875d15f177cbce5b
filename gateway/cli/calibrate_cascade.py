"""``forebay router calibrate-cascade``: weights and a confidence for a route's cascade, offline."""

from __future__ import annotations

import sys
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.errors import CliError
from gateway.cli.output import print_json

_NOTHING_LEARNED = (
    "nothing was learned: on held-out rows an answer's beginning tells no more of it than how many"
    " are good; what these weights keep is luck"
)


def calibrate_cascade(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .csv, .jsonl or .parquet.")],
    *,
    share_kept: Annotated[
        float | None, typer.Option(min=0, max=1, help="At least this share of answers is kept.")
    ] = None,
    quality: Annotated[
        float | None, typer.Option(min=0, max=1, help="Of those kept, this share is good.")
    ] = None,
    penalty: Annotated[float, typer.Option(min=0, help="Regularisation.")] = 1.0,
) -> None:
    """Fit what the beginning of a small model's answer says of it, and find where to keep one.

    Figures are of rows that were held out of the weights that judged them.
    """
    from routing.learned.confidence import calibrate_cascade as calibrate
    from routing.learned.confidence import read_judged_beginnings
    from routing.learned.judged_prompts import DataError
    from routing.learned.target_error import TargetError

    if not isfinite(penalty):
        raise CliError("--penalty must be a finite number.")
    try:
        rows = read_judged_beginnings(file)
        found = calibrate(rows, share_kept=share_kept, quality=quality, penalty=penalty)
    except OSError as error:
        raise CliError(f"{file} cannot be read: {error.strerror}") from error
    except (DataError, TargetError) as error:
        raise CliError(str(error)) from error
    note = None if found.has_learned else _NOTHING_LEARNED
    if note is not None:
        print(f"warning: {note}", file=sys.stderr, flush=True)
    option = ",".join(f"{weight:.6g}" for weight in found.weights)
    print_json(
        {
            **asdict(found),
            "note": note,
            "weights": found.weights._asdict(),
            "options": f"--keep-at {found.keep_at:.4f} --cascade-weights={option}",
        }
    )
