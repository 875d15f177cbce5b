"""From trained floats to the file that the request path reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from routing.complexity.features import FIGURES
from routing.complexity.predictor import CLIP, Group, Header, encode_weights
from routing.learned.train import Trained

# A group's limit lets through this share of its own training prompts: chosen beforehand, not on results.
KEPT_SHARE = 0.99
_LEAST_SPREAD = 0.1
_LARGEST = 32767


def make_groups(datasets: Sequence[str], standardised: Any) -> tuple[Group, ...]:
    """Return where each dataset's prompts lie, from (prompts, figures)."""
    names = np.array(datasets)
    groups: list[Group] = []
    for name in sorted(set(datasets)):
        mine = standardised[names == name]
        centre, spread = mine.mean(0), mine.std(0).clip(_LEAST_SPREAD)
        distances = (((mine - centre) / spread) ** 2).mean(1)
        limit = max(float(np.quantile(distances, KEPT_SHARE)), 1e-6)
        groups.append(Group(name, tuple(centre.tolist()), tuple(spread.tolist()), limit))
    return tuple(groups)


def pack(
    trained: Trained,
    *,
    name: str,
    figures: Any,
    datasets: Sequence[str],
    targets: Any,
    scores: Any,
    made_from: dict[str, str | int | float],
) -> bytes:
    """Return the file. ``scores`` are the training rows' own, whose scale the length rule is given."""
    scales = np.maximum(np.abs(trained.table).max(0), 1e-9) / _LARGEST
    table = (trained.table / scales).round().astype("<i2").T.tobytes()
    standardised = ((figures - trained.means) / trained.deviations).clip(-CLIP, CLIP)
    small, large = (tuple(one) for one in trained.figure_weights.T.tolist())
    slope = float(scores.std() / (figures[:, 0].std() or 1.0))
    header = Header(
        name=name,
        bits=trained.bits,
        scales=tuple(scales.tolist()),
        biases=tuple(trained.biases.tolist()),
        figures=FIGURES,
        means=tuple(trained.means.tolist()),
        deviations=tuple(trained.deviations.tolist()),
        figure_weights=(small, large),
        groups=make_groups(datasets, standardised),
        base_rates=tuple(targets.mean(0).tolist()),
        length_offset=float(scores.mean() - slope * figures[:, 0].mean()),
        length_slope=slope,
        made_from=made_from,
    )
    return encode_weights(header, table)
