"""Options of a tier policy's cascade, and how it is shown."""

from __future__ import annotations

import contextlib
from math import isfinite
from typing import Annotated, Any

import typer

from gateway.cli.errors import CliError

WEIGHT_NAMES = ("bias", "mean_logprob", "min_logprob", "prompt_score")

CascadeOption = Annotated[
    bool,
    typer.Option("--cascade", help="A tier below the last answers first, and goes on if sure."),
]
TokensOption = Annotated[
    int | None, typer.Option(help="Of the answer that are looked at, the first.")
]
KeepAtOption = Annotated[
    float | None, typer.Option(help="Confidence, 0 to 1, from which the answer is kept.")
]
DecideOption = Annotated[
    float | None, typer.Option("--decide-ms", help="Time to decide in, since the first token.")
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        metavar="BIAS,MEAN,MIN,PROMPT", help="As `forebay router calibrate-cascade` shows them."
    ),
]


def read_cascade(
    *,
    is_wanted: bool,
    tokens: int | None,
    keep_at: float | None,
    decide_ms: float | None,
    weights: str | None,
) -> dict[str, Any] | None:
    """Return the cascade as the control API takes it; None where nothing of one is given."""
    given = {
        "tokens": tokens,
        "keep_at": keep_at,
        "decide_ms": decide_ms,
        "weights": None if weights is None else _read_weights(weights),
    }
    found = {name: value for name, value in given.items() if value is not None}
    return found if found or is_wanted else None


def write_cascade(cascade: dict[str, Any]) -> str:
    """Return a cascade in a sentence."""
    weights = ", ".join(f"{name} {cascade['weights'][name]:g}" for name in WEIGHT_NAMES)
    return (
        f"All but the last answer first: kept from a confidence of {cascade['keep_at']:g}, by"
        f" {cascade['tokens']} tokens or {cascade['decide_ms']:g} ms; {weights}."
    )


def _read_weights(text: str) -> dict[str, float]:
    with contextlib.suppress(ValueError):
        weights = dict(zip(WEIGHT_NAMES, map(float, text.split(",")), strict=True))
        if all(map(isfinite, weights.values())):
            return weights
    raise CliError(f"--cascade-weights: {text!r} is not four numbers.")
