"""Limits, budgets, claims, and a clock that tests set."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from gateway.dataplane.estimate import Guess, Kind
from gateway.dataplane.limits.types import Claim, LimitPlan
from gateway.snapshot.model import Budget, RateLimit, Snapshot

JOURNAL = "jrn_test"
SECOND = 1_000_000
START_US = 1_780_000_000 * SECOND  # 2026-05-28T20:26:40Z
UNIT = 1_000_000_000  # one unit of a currency, in nano

_numbers = itertools.count()


class SetClock:
    """A clock that stands still until a test moves it, forth or back."""

    def __init__(self, at_us: int = START_US) -> None:
        self.at_us = at_us

    def __call__(self) -> int:
        return self.at_us

    def advance(self, seconds: float) -> None:
        self.at_us += round(seconds * SECOND)


def make_limit(
    metric: str = "requests",
    amount: int = 10,
    per_seconds: int = 60,
    *,
    name: str = "",
    scope: str = "key",
) -> RateLimit:
    seconds = 0 if metric == "in_flight" else per_seconds
    return RateLimit(name or f"lim_{metric}", scope, f"{scope}_1", metric, amount, seconds)


def make_budget(
    amount: str = "1", window: str = "daily", *, name: str = "bud_1", is_hard: bool = True
) -> Budget:
    return Budget(name, name, "key", "key_1", window, amount, "USD", is_hard=is_hard)


def make_plan(*parts: RateLimit | Budget) -> LimitPlan:
    return LimitPlan(
        tuple(part for part in parts if isinstance(part, RateLimit)),
        tuple(part for part in parts if isinstance(part, Budget)),
    )


def make_claim(
    plan: LimitPlan,
    *,
    input_tokens: int = 10,
    output_tokens: int = 20,
    hold_nano: int = 0,
    started_at_us: int = START_US,
) -> Claim:
    return Claim(
        f"req_{next(_numbers)}",
        plan,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        hold_nano=hold_nano,
        started_at_us=started_at_us,
    )


def snapshot_of(parts: Iterable[RateLimit | Budget], version: int = 1) -> Snapshot:
    plan = make_plan(*parts)
    return Snapshot(version, START_US, limits=plan.limits, budgets=plan.budgets)


def guess_of(input_tokens: int, output_tokens: int, *, is_counted: bool = False) -> Guess:
    """Return a guess that was made already, of bytes or of counted tokens."""
    return Guess(Kind(), int(not is_counted), 0, None, 1, input_tokens, output_tokens)
