"""Whether anybody uses an engine, from its own counters. Pure."""

from __future__ import annotations

from backends.vllm.metrics import EngineMetrics


class Activity:
    """When an engine was last seen at work; times are any clock's seconds."""

    def __init__(self, now: float) -> None:
        self._last_at = now
        self._mark: tuple[object, ...] | None = None

    def note(self, metrics: EngineMetrics | None, now: float) -> None:
        """Look at a metrics page; None, or one that says nothing, counts as work.

        An engine of which nothing is known is never put to sleep.
        """
        if metrics is None or metrics.running is None or metrics.waiting is None:
            self._last_at = now
            return
        mark = (
            metrics.prompt_tokens,
            metrics.generation_tokens,
            sum(metrics.requests_by_reason.values()),
        )
        if metrics.running or metrics.waiting or mark != self._mark:
            self._last_at = now
        self._mark = mark

    def restart(self, now: float) -> None:
        """Count from now on: it has just become ready."""
        self._last_at = now

    def find_idle_seconds(self, now: float) -> float:
        """Return for how long it has done nothing."""
        return now - self._last_at
