"""What the commands of ``forebay router`` read: judged prompts, and the weights that score them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.cli.errors import CliError

if TYPE_CHECKING:
    from routing.complexity.predictor import Predictor
    from routing.learned.judged_prompts import JudgedPrompt


def read_prompts(
    path: Path, datasets: list[str] | None, pair: str | None, splits: list[str] | None
) -> list[JudgedPrompt]:
    """Return the rows of a dataset, pair and split, all where none is named. Raises CliError."""
    from routing.learned.judged_prompts import read_judged_prompts

    try:
        rows = or_refuse(read_judged_prompts, path)
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}") from error
    rows = [
        row
        for row in rows
        if (not datasets or row.dataset in datasets)
        and (pair is None or row.pair == pair)
        and (not splits or row.split in splits)
    ]
    if not rows:
        raise CliError(
            "no rows of this dataset, pair and split"
            + (f" ({' or '.join(splits)})" if splits else "")
        )
    return rows


def load_weights(path: Path | None) -> Predictor:
    """Return the weights in a file, by default those that are shipped. Raises CliError."""
    from routing.complexity.predictor import SHIPPED, read_weights

    try:
        predictor: Predictor = or_refuse(read_weights, path or SHIPPED)
    except OSError as error:
        raise CliError(f"{path or SHIPPED} cannot be read: {error.strerror}") from error
    return predictor


def choose_weights(
    path: Path | None, pairs: Iterable[str], say: Callable[[str], None]
) -> dict[str, Predictor]:
    """Return the weights that score each pair of models: the file's, else those shipped for the pair.

    ``say`` is told of every pair that the weights were not made for. Raises CliError.
    """
    from routing.complexity.predictor import list_shipped

    default = load_weights(path)
    shipped = [load_weights(one) for one in list_shipped().values()] if path is None else []
    chosen: dict[str, Predictor] = {}
    for pair in sorted(set(pairs)):
        fitting = [one for one in (default, *shipped) if pair in _list_pairs(one)]
        chosen[pair] = fitting[0] if fitting else default
        made_for = [one for one in _list_pairs(default) if one]
        if fitting or not made_for or (path is not None and not pair):
            continue
        rows = f"rows of {pair}" if pair else "rows that name no pair of models"
        say(
            f"warning: {rows} are scored with {default.header.name}, which was made for"
            f" {', '.join(made_for)}" + ("; give --weights" if path is None else "")
        )
    return chosen


def or_refuse(function: Any, *arguments: Any, **options: Any) -> Any:
    """Call; what the caller's file or target is at fault for becomes a sentence."""
    from routing.complexity.predictor import WeightsError
    from routing.learned.judged_prompts import DataError
    from routing.learned.target_error import TargetError

    try:
        return function(*arguments, **options)
    except (DataError, TargetError, WeightsError) as error:
        raise CliError(str(error)) from error


def _list_pairs(predictor: Predictor) -> list[str]:
    return [part.pair for part in predictor.header.parts]
