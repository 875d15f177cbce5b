"""When a load is too much: for the engine, or for the client that measures. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backends.sweep.outcome import Failure

_GROWTH_SHARE = 0.05  # of the arrivals, that are left over in the window
_GROWTH_DEVIATIONS = 4.0
_LEAST_GAIN = 1.05
_LEAST_RISE = 1.2
_FLAT_STEPS = 2
_FAILED_SHARE = 0.5
_CPU_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Flow:
    """Requests under way over a window."""

    arrivals: int
    began_with: int
    ended_with: int
    mean: float


def is_over_saturated(flow: Flow, *, not_sent: int) -> bool:
    """Whether the queue grew beyond chance in an open loop: it would grow without bound."""
    growth = flow.ended_with - flow.began_with
    chance = _GROWTH_DEVIATIONS * math.sqrt(flow.mean + 1)
    return not_sent > 0 or growth > max(_GROWTH_SHARE * flow.arrivals, chance)


def is_flat(loads: Sequence[float], rates: Sequence[float]) -> bool:
    """Whether the last two steps of a closed loop gave nothing for a load that rose."""
    if len(rates) <= _FLAT_STEPS:
        return False
    for place in range(len(rates) - _FLAT_STEPS, len(rates)):
        best = max(rates[:place])
        if loads[place] < _LEAST_RISE * loads[place - 1] or rates[place] > _LEAST_GAIN * best:
            return False
    return True


def mostly_fails(failures: Mapping[str, int], completed: int) -> bool:
    """Whether a step has too few answers to go on; what we did not send is no failure of it."""
    failed = sum(count for kind, count in failures.items() if kind != Failure.NOT_SENT)
    return not completed or failed > _FAILED_SHARE * (failed + completed)


@dataclass(frozen=True, slots=True)
class ClientLoad:
    """How busy the client was in a window."""

    lag_p95_ms: float  # of its event loop: how late timers ran
    lag_p99_ms: float
    cpu_share: float  # of one core

    def find_fault(self, max_lag_ms: float) -> str | None:
        """Return why the step measured the client rather than the engine; None: it did not."""
        if self.lag_p95_ms > max_lag_ms:
            return f"its event loop ran {self.lag_p95_ms:.1f} ms late (p95)"
        if self.cpu_share > _CPU_SHARE:
            return f"it used {self.cpu_share:.0%} of its one core"
        return None
