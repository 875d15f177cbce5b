"""What the data plane is expected to reach beside nginx, in the same run."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec


class Verdict(msgspec.Struct, frozen=True):
    """One expectation beside what was measured."""

    name: str
    wanted: str  # ">= 0.25"
    got: float | None  # None: not measured
    ok: bool | None  # None: not judged


@dataclass(frozen=True)
class Expectation:
    """One bound on one figure of Forebay, or on a ratio."""

    name: str
    figure: str
    is_at_least: bool
    bound: float
    scale: float = 1.0  # of the figure, so that bound and got are read in the same unit

    @property
    def wanted(self) -> str:
        """The bound, as read by people and programs: ">= 0.25"."""
        return f"{'>=' if self.is_at_least else '<='} {self.bound:g}"

    def check(self, figures: Mapping[str, float], *, is_judged: bool) -> Verdict:
        """Compare with what was measured."""
        found = figures.get(self.figure)
        got = None if found is None else round(found * self.scale, 4)
        holds: Callable[[float, float], bool] = operator.ge if self.is_at_least else operator.le
        is_ok = holds(got, self.bound) if got is not None and is_judged else None
        return Verdict(name=self.name, wanted=self.wanted, got=got, ok=is_ok)


def _at_least(name: str, figure: str, bound: float, scale: float = 1.0) -> Expectation:
    return Expectation(name, figure, is_at_least=True, bound=bound, scale=scale)


def _at_most(name: str, figure: str, bound: float) -> Expectation:
    return Expectation(name, figure, is_at_least=False, bound=bound)


EXPECTATIONS = (
    _at_least("requests/s at 64 connections, of nginx", "forebay_of_nginx", 0.25),
    _at_least("with limits and budgets, of without", "limits_of_forebay", 0.75),
    _at_most("one connection, p50 ms", "one_p50_ms", 0.3),
    _at_most("at 30 % of saturation, p99 ms", "rate_p99_ms", 2),
    _at_least("burst, M chunks/s", "burst_chunks_s", 1, scale=1e-6),
    _at_least(
        "burst, usage on every chunk, M chunks/s", "burst_continuous_chunks_s", 1, scale=1e-6
    ),
    _at_most("500 paced streams, delay p99 ms", "paced_delay_p99_ms", 10),
    _at_most("500 paced streams, share of a core", "paced_cpu", 0.6),
    _at_most("500 paced, usage on every chunk, delay p99 ms", "paced_continuous_delay_p99_ms", 10),
    _at_most("500 paced, usage on every chunk, share of a core", "paced_continuous_cpu", 0.6),
    _at_least("streams held", "held_streams", 800),
    _at_least("streams held, usage on every chunk", "held_continuous_streams", 800),
    _at_most("worker RSS, peak MB", "rss_worker_peak_mb", 120),
    # Three bytes a request: the noise of an allocator passes, a leaked object of any kind does not.
    _at_most("RSS growth, MB per million requests", "rss_growth_mb_per_million", 3),
    _at_most("requests without a whole, good answer", "bad", 0),
    _at_most("requests not metered", "unmetered", 0),
)


def check_expectations(figures: Mapping[str, float], *, is_judged: bool) -> list[Verdict]:
    """Return a verdict on each; when not judged (a quick run), only what was got."""
    return [expectation.check(figures, is_judged=is_judged) for expectation in EXPECTATIONS]
