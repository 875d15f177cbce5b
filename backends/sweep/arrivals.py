"""Which loads are held, and when requests are due in an open loop. Pure, the same for a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import pairwise

from backends.sweep.errors import SweepError

_MOST_LOADS = 1000


def poisson_arrivals(per_second: float, rng: random.Random) -> Iterator[float]:
    """Yield seconds from the beginning, ascending, for ever: many independent clients."""
    at = 0.0
    while True:
        at += rng.expovariate(per_second)
        yield at


def parse_loads(text: str, growth: float) -> list[float]:
    """Return rising loads: of ``1,2,4`` these, of ``1..64`` from 1 to 64 by the factor.

    Raises :class:`SweepError`.
    """
    low, dots, high = text.partition("..")
    if dots:
        first, last = _parse(low), _parse(high)
        if last < first or growth <= 1:
            raise SweepError(f"{text!r}: the loads must rise")
        count = math.floor(math.log(last / first) / math.log(growth) + 1e-9) + 1
        if count > _MOST_LOADS:
            raise SweepError(f"{text!r} are more than {_MOST_LOADS} loads")
        loads = [first * growth**number for number in range(count)]
        if loads[-1] < last * 0.999:
            loads.append(last)
    else:
        loads = [_parse(part) for part in text.split(",")]
    if any(after <= before for before, after in pairwise(loads)):
        raise SweepError(f"{text!r}: the loads must rise")
    return loads


def whole_loads(loads: list[float]) -> list[float]:
    """Return the loads as whole numbers of clients, each once."""
    return sorted({float(max(1, round(load))) for load in loads})


def _parse(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise SweepError(f"{text!r} is no load; write loads like 1,2,4 or 1..64")
    return number
