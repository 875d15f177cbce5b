"""Whether prompts are still those they were: the population stability index of their scores. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

NOTEWORTHY = 0.2  # by convention: 0.1 is a change worth a look, 0.25 another population
_CELLS = 10  # of about equal share in what was before
_LEAST_SHARE = 1e-4  # of an empty cell: a logarithm needs one


def measure_drift(before: Sequence[int], now: Sequence[int]) -> float | None:
    """Return the index for counts in the same ascending cells; None where one side has none.

    Cells are joined first until each holds a tenth of what was before: the index grows with their
    number. 0 means the same shares; it does not matter which side is called ``before`` but for that.
    """
    total, others = sum(before), sum(now)
    if not total or not others:
        return None
    found = 0.0
    held = held_now = 0
    for place, (count, count_now) in enumerate(zip(before, now, strict=True)):
        held += count
        held_now += count_now
        is_last = place + 1 == len(before)
        if held * _CELLS >= total or is_last:
            share = max(held / total, _LEAST_SHARE)
            share_now = max(held_now / others, _LEAST_SHARE)
            found += (share_now - share) * log(share_now / share)
            held = held_now = 0
    return found
