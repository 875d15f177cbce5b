"""What goes wrong on demand: which fault strikes whom, for how long, how often. Pure but for its clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Literal

import msgspec

Page = Literal["generation", "health", "metrics"]


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What goes wrong, any of it together. Raises ``ValueError`` for what cannot be.

    How often is counted apart for generation requests, ``/health`` and ``/metrics``.
    """

    every: int = 1  # strikes every n-th request
    chance: float = 1.0  # and of those each with this probability, drawn from the seed
    count: int | None = None  # strikes at most so often
    seconds: float | None = None  # ends after this time
    # Requests to generate:
    status: int | None = None  # answer this (300..599) and generate nothing
    retry_after_seconds: int | None = None  # beside it
    delay_ms: float = 0.0  # stay silent for so long before the request is even read
    hang: bool = False  # never answer
    garbage: Literal["http", "json", "sse"] | None = None  # answer what cannot be read
    drain: bool = False  # 500, as vLLM answers while it shuts down with its health still good
    cut_after_tokens: int | None = None  # then the connection breaks, without an end
    stall_after_tokens: int | None = None  # then nothing comes any more
    error_after_tokens: int | None = None  # then an error event and [DONE]; 0: after the role
    # The engine, as long as the fault lasts:
    slow: float = 1.0  # each step takes so many times as long
    refuse: bool = False  # connections are refused, open ones reset
    # Pages:
    health_status: int | None = None
    health_delay_ms: float = 0.0
    metrics: Literal["missing", "garbage"] | None = None

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every must be at least 1, got {self.every}")
        if not 0 <= self.chance <= 1:
            raise ValueError(f"chance must be within 0..1, got {self.chance}")
        if not self.slow > 0:
            raise ValueError(f"slow must be above 0, got {self.slow}")
        for name in ("status", "health_status"):
            value = getattr(self, name)
            if value is not None and not 300 <= value <= 599:
                raise ValueError(f"{name} must be within 300..599, got {value}")
        for name in (
            *("count", "seconds", "retry_after_seconds", "delay_ms", "health_delay_ms"),
            *("cut_after_tokens", "stall_after_tokens", "error_after_tokens"),
        ):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} must not be negative, got {value}")


NO_FAULTS = Faults()


class FaultPlan:
    """The faults in force, and whom they have struck. ``clock`` gives seconds, from any moment."""

    def __init__(self, faults: Faults | None, seed: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self.set(faults)

    def set(self, faults: Faults | None) -> None:
        """Put these in force from now on; None ends all."""
        self._faults = faults
        self._set_at = self._clock()
        self._seen: dict[str, int] = {}
        self._struck: dict[str, int] = {}

    def find_faults(self) -> Faults | None:
        """Return what is in force now."""
        faults = self._faults
        if faults is None or faults.seconds is None:
            return faults
        if self._clock() - self._set_at >= faults.seconds:
            self._faults = None
        return self._faults

    def strike(self, page: Page) -> Faults:
        """Return what a request to ``page`` meets; :data:`NO_FAULTS` if it is spared."""
        faults = self.find_faults()
        if faults is None:
            return NO_FAULTS
        seen = self._seen[page] = self._seen.get(page, 0) + 1
        struck = self._struck.get(page, 0)
        if seen % faults.every or (faults.count is not None and struck >= faults.count):
            return NO_FAULTS
        if faults.chance < 1 and self._random.random() >= faults.chance:
            return NO_FAULTS
        self._struck[page] = struck + 1
        return faults

    @property
    def slowness(self) -> float:
        """How many times as long a step takes."""
        faults = self.find_faults()
        return 1.0 if faults is None else faults.slow

    def describe(self) -> dict[str, Any]:
        """Return what ``GET /faults`` shows."""
        return {"faults": self.find_faults(), "seen": self._seen, "struck": self._struck}
