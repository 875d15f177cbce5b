"""What the classifier made of one prompt, for people."""

from __future__ import annotations

from math import isfinite, sqrt
from typing import Any

from routing.complexity.features import FIGURES, clip, extract, find_word_hashes
from routing.complexity.predictor import Predictor, clip_figures, measure_distance

_SHOWN = 10


def explain_prompt(predictor: Predictor, prompt: str) -> dict[str, Any]:
    """Return the prediction, the figures and words that weigh most (for the large model), the groups."""
    prediction = predictor.predict(prompt)
    header = predictor.header
    features = extract(prompt)
    standardised = predictor.standardise(features)
    _, part = predictor.find_part(standardised)
    heads = header.parts[part].figure_weights
    slopes = [large - small for small, large in zip(*heads, strict=True)]
    figures = {
        name: {"value": round(value, 4), "weighs": round(slope * unit, 4)}
        for name, value, slope, unit in zip(
            FIGURES, features.figures, slopes, clip_figures(standardised), strict=True
        )
    }
    share = 1 / sqrt(len(features.terms) or 1)
    words = {
        word: round(predictor.weigh(hashed, part) * share, 4)
        for word, hashed in find_word_hashes(clip(prompt)).items()
    }
    heaviest = sorted(words.items(), key=lambda item: -abs(item[1]))[:_SHOWN]
    return {
        "weights": {"name": header.name, "sha256": predictor.digest},
        "pair": header.parts[part].pair,
        "score": prediction.score,
        "small_suffices": prediction.small_suffices,
        "large_suffices": prediction.large_suffices,
        "is_in_domain": prediction.is_in_domain,
        "decided_by": "classifier" if prediction.is_in_domain else "length",
        "distance": prediction.distance if isfinite(prediction.distance) else None,
        "groups": {
            group.name: measure_distance(standardised, group) / group.limit
            for group in header.groups
        },
        "figures": figures,
        "words": dict(heaviest),
    }
