"""From trained floats to the file that the request path reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from routing.complexity.features import FIGURES
from routing.complexity.predictor import FAR, Group, Header, Part, encode_weights
from routing.learned.train import Scale, Trained

# A group's limit lets through this share of its own training prompts: chosen beforehand, not on results.
KEPT_SHARE = 0.99
_LEAST_SPREAD = 0.1
_LEAST_SLOPE = 0.01
_LARGEST = 32767


@dataclass(frozen=True, slots=True)
class LearnedPart:
    """One pair's weights and the rows they were trained on; ``datasets`` is empty if nothing was learned.

    ``shares`` are the rows' own predictions.
    """

    pair: str
    trained: Trained
    figures: Any
    datasets: Sequence[str]
    targets: Any
    shares: Any


def make_groups(datasets: Sequence[str], standardised: Any, part: int = 0) -> tuple[Group, ...]:
    """Return where each dataset's prompts lie, from (prompts, figures)."""
    names = np.array(datasets)
    groups: list[Group] = []
    for name in sorted(set(datasets)):
        mine = standardised[names == name]
        centre, spread = mine.mean(0), mine.std(0).clip(_LEAST_SPREAD)
        distances = (((mine - centre) / spread) ** 2).mean(1)
        limit = max(float(np.quantile(distances, KEPT_SHARE)), 1e-6)
        groups.append(Group(name, part, tuple(centre.tolist()), tuple(spread.tolist()), limit))
    return tuple(groups)


def measure_distances(standardised: Any, group: Group) -> Any:
    """Return how far prompts are from a group, 1 being its limit; as the request path measures it."""
    off = (standardised - np.array(group.centre)) / np.array(group.spread)
    return (off**2).mean(1) / group.limit


def pack(
    learned: Sequence[LearnedPart],
    *,
    name: str,
    bits: int,
    scale: Scale,
    made_from: dict[str, str | int | float],
) -> bytes:
    """Return the file. The length rule is given the scale of the training rows' own scores."""
    parts: list[Part] = []
    groups: list[Group] = []
    tables: list[bytes] = []
    for number, one in enumerate(learned):
        part, table = _pack_part(one)
        parts.append(part)
        tables.append(table)
        groups += make_groups(one.datasets, scale.apply(one.figures, FAR), number)
    lengths = np.concatenate([one.figures[:, 0] for one in learned])
    scores = np.concatenate([one.shares[:, 1] - one.shares[:, 0] for one in learned])
    # Never flat: out of domain a longer prompt has to score higher.
    slope = max(float(scores.std() / (lengths.std() or 1.0)), _LEAST_SLOPE)
    header = Header(
        name=name,
        bits=bits,
        figures=FIGURES,
        means=tuple(scale.means.tolist()),
        deviations=tuple(scale.deviations.tolist()),
        parts=tuple(parts),
        groups=tuple(groups),
        base_rates=tuple(np.concatenate([one.targets for one in learned]).mean(0).tolist()),
        length_offset=float(scores.mean() - slope * lengths.mean()),
        length_slope=slope,
        made_from=made_from,
    )
    return encode_weights(header, b"".join(tables))


def _pack_part(one: LearnedPart) -> tuple[Part, bytes]:
    scales = np.maximum(np.abs(one.trained.table).max(0), 1e-9) / _LARGEST
    table = (one.trained.table / scales).round().astype("<i2").T.tobytes()
    small, large = (tuple(head) for head in one.trained.figure_weights.T.tolist())
    part = Part(
        one.pair, tuple(scales.tolist()), tuple(one.trained.biases.tolist()), (small, large)
    )
    return part, table
