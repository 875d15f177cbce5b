"""From judged prompts to weights: choose on held-out folds, leave out what was not learned, fit, pack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from routing.complexity.predictor import FAR, MOST_GROUPS, decode_weights
from routing.learned.compare import Comparison, compare_with_length
from routing.learned.export import LearnedPart, make_groups, measure_distances, pack
from routing.learned.judged_prompts import DataError, JudgedPrompt, group_questions
from routing.learned.targets import make_targets
from routing.learned.train import (
    Encoded,
    Plan,
    Scale,
    choose_penalty,
    describe,
    encode,
    extract_all,
    fit,
    measure_scale,
    predict,
    take,
)

# Datasets of fewer prompts are judged, and learned from, as one: alone each would pass or fail by
# luck, and of many some always pass. What tells them apart is most of what can be learned from them.
SMALL_DATASET = 300
_MOST_PAIRS = 16
_NOTHING_LEARNED = (
    "nothing was learned: on held-out rows the classifier is not clearly better than the prompts'"
    " length, so that these weights go by the length of every prompt; more rows are needed, or rows"
    " whose prompts tell more"
)


@dataclass(frozen=True, slots=True)
class Made:
    """Weights as they go into a file, and what was decided on the way, plain for JSON."""

    data: bytes
    summary: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Choice:
    """What was decided for one pair of models; ``kept`` are its rows that are learned from.

    ``sources`` names for each of those what it was judged with: its dataset, or all the small ones.
    """

    pair: str
    penalty: float
    held_out: dict[str, Comparison]
    kept: Any
    sources: Any

    @property
    def learned(self) -> list[str]:
        return [name for name, one in self.held_out.items() if one.is_better]


def make_weights(
    rows: Sequence[JudgedPrompt], *, name: str, plan: Plan, say: Callable[[str], None]
) -> Made:
    """Train on the rows whose split is train; no other row is looked at. Each pair of models is a part.

    A dataset (or all the small ones together) on whose held-out folds the classifier does not rank
    clearly better than the prompts' length is left out: its prompts are then out of domain, unless
    they look like another's.

    Raises:
        DataError: no training rows, or the large model is nowhere better.
    """
    torch.set_num_threads(1)  # sums in one order, whatever the machine's cores
    rows = sorted((row for row in rows if row.split == "train"), key=_place)
    if not rows:
        raise DataError("no row is of the split train")
    encoded, targets = encode(extract_all(rows), plan.bits), make_targets(rows)
    pairs = np.array([row.pair for row in rows])
    if len(set(pairs.tolist())) > _MOST_PAIRS:
        raise DataError(f"the file has more than {_MOST_PAIRS} pairs of models")
    choices = []
    for pair in sorted(set(pairs.tolist())):
        mine = np.flatnonzero(pairs == pair)
        choices.append(_choose(pair, rows, mine, encoded, targets, plan=plan, say=say))
    if not any(choice.held_out for choice in choices):
        if len(set(group_questions(rows))) == 1:
            raise DataError(
                "all training rows are one question: none can be held out beside others"
            )
        raise DataError("the large model is better in none of the datasets")
    used = [choice for choice in choices if choice.learned]
    # Nothing learned: no prompt is in domain, and length decides everywhere.
    used = used or [max(choices, key=lambda one: len(one.kept))]
    scale = measure_scale(take(encoded, np.concatenate([choice.kept for choice in used])))
    has_many = sum(len({*choice.sources.tolist()}) for choice in used) > MOST_GROUPS
    parts = []
    for choice in used:
        chosen, aims = take(encoded, choice.kept), targets[choice.kept]
        trained = fit(chosen, aims, scale, choice.penalty, plan)
        datasets = choice.sources.tolist() if choice.learned else []
        if has_many:
            datasets = join_least(datasets, MOST_GROUPS // len(used))
        shares = predict(trained, chosen, scale)
        parts.append(LearnedPart(choice.pair, trained, chosen.figures, datasets, aims, shares))
    data = pack(parts, name=name, bits=plan.bits, scale=scale, made_from=_tell(used, plan))
    has_learned = any(choice.learned for choice in choices)
    summary = {
        "has_learned": has_learned,
        "note": None if has_learned else _NOTHING_LEARNED,
        "plan": asdict(plan),
        "prompts": sum(len(choice.kept) for choice in used),
        "pairs": {choice.pair: _summarise(choice) for choice in choices},
        "torch": torch.__version__,
        "sha256": decode_weights(data).digest,
    }
    return Made(data, summary)


def _place(row: JudgedPrompt) -> tuple[str, str, str, str, float, float]:
    """Return what puts rows in one order: sums then round alike, whatever order the file has."""
    return row.pair, row.dataset, row.stem, row.prompt, row.weak_score, row.strong_score


def _choose(
    pair: str,
    rows: Sequence[JudgedPrompt],
    mine: Any,
    encoded: Encoded,
    targets: Any,
    *,
    plan: Plan,
    say: Callable[[str], None],
) -> _Choice:
    """Choose a pair's penalty and the datasets that it learns from."""
    own = [rows[index] for index in mine]
    sources = name_sources([row.dataset for row in own])
    names = np.array(sources)
    say(f"{pair or 'all'}: {len(own)} prompts of {', '.join(sorted(set(sources)))}")
    found = choose_penalty(own, sources, take(encoded, mine), targets[mine], plan=plan, say=say)
    scores = found.predictions[:, 1] - found.predictions[:, 0]
    lengths = encoded.figures[mine, 0]
    held_out = {}
    for dataset in found.apgr:
        at = np.flatnonzero((names == dataset) & ~np.isnan(scores))
        weak, strong = targets[mine[at], 0], targets[mine[at], 1]
        held_out[dataset] = compare_with_length(
            scores[at], lengths[at], weak, strong, seed=plan.seed
        )
    choice = _Choice(pair, found.penalty, held_out, mine, names)
    say(
        f"penalty {found.penalty:g}; length's held-out APGR "
        f"{describe({name: one.length for name, one in held_out.items()})}; "
        f"learned from: {', '.join(choice.learned) or 'nothing'}"
    )
    if not choice.learned:
        return choice
    learned = find_alike(names, encoded.figures[mine], choice.learned)
    if also := sorted({*names[learned].tolist()} - {*choice.learned}):
        say(f"also learned from, since they look alike: {', '.join(also)}")
    return replace(choice, kept=mine[learned], sources=names[learned])


def find_alike(names: Any, figures: Any, learned: Sequence[str]) -> Any:
    """Return which rows are learned from: those of the sources ``learned``, and of what looks like them.

    Where most prompts of a source are in the others' domain, they are scored by what these taught,
    and are better learned from.
    """
    is_learned = np.isin(names, learned)
    scale = Scale(figures[is_learned].mean(0), figures[is_learned].std(0) + 1e-6)
    standardised = scale.apply(figures, FAR)
    groups = make_groups(names[is_learned].tolist(), standardised[is_learned])
    nearest = np.min([measure_distances(standardised, one) for one in groups], axis=0)
    for name in sorted(set(names.tolist()) - set(learned)):
        if (nearest[names == name] <= 1).mean() > 0.5:
            is_learned = is_learned | (names == name)
    return is_learned


def name_sources(datasets: Sequence[str]) -> list[str]:
    """Return for each row what it is judged with: its dataset, or one name for all that are small."""
    small = {name for name, count in Counter(datasets).items() if count < SMALL_DATASET}
    if len(small) < 2:
        return list(datasets)
    return [f"{len(small)} small datasets" if name in small else name for name in datasets]


def join_least(names: Sequence[str], most: int) -> list[str]:
    """Return the names, of more than ``most`` the rarest as one: each costs every prediction time."""
    counts = Counter(names)
    if len(counts) <= most:
        return list(names)
    kept = {name for name, _ in counts.most_common(most - 1)}
    return [name if name in kept else "others" for name in names]


def _summarise(choice: _Choice) -> dict[str, Any]:
    return {
        "penalty": choice.penalty,
        "prompts": len(choice.kept),
        "learned_from": choice.learned,
        "also_learned_from": sorted({*choice.sources.tolist()} - {*choice.learned})
        if choice.learned
        else [],
        "held_out": {name: asdict(one) for name, one in choice.held_out.items()},
    }


def _tell(used: Sequence[_Choice], plan: Plan) -> dict[str, str | int | float]:
    """Return the card's figures that stand in the file itself."""
    told: dict[str, str | int | float] = {
        "prompts": sum(len(choice.kept) for choice in used),
        "seed": plan.seed,
    }
    for choice in used:
        for dataset in choice.learned:
            told[f"held_out_apgr {dataset}"] = round(choice.held_out[dataset].classifier, 4)
            told[f"held_out_apgr_of_length {dataset}"] = round(choice.held_out[dataset].length, 4)
    return told
