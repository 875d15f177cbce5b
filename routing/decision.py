"""What was decided, and on request why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from routing.filters import Obstacle
from routing.load_view import LoadView

# One candidate's scores, each within 0..1 and before its weight: what the picker makes of each, as
# a plain tuple, since nearly nobody asks.
SCORE_NAMES = (
    "total",  # weighted
    "work_tokens",  # before a newcomer there
    "load",
    "kv_room",
    "prefix",
    "latency",
    "session",
    "adapter",
)
Scores = tuple[float, float, float, float, float, float, float, float]


class Decision:
    """The replica that a request goes to. It keeps what it was made of and explains only if asked."""

    __slots__ = (
        "_candidates",
        "_passed_over",
        "_scores",
        "_unseen",
        "cached_tokens",
        "last_resort",
        "view",
    )

    def __init__(
        self,
        view: LoadView,
        *,
        last_resort: Obstacle | None = None,
        cached_tokens: int = 0,
        candidates: Sequence[LoadView] = (),
        scores: Sequence[Scores] = (),
        passed_over: Sequence[tuple[LoadView, Obstacle]] = (),
        unseen: int = 0,
    ) -> None:
        self.view = view
        self.last_resort = last_resort  # what stands against it; None: nothing does
        self.cached_tokens = cached_tokens  # of the prompt, as we guess
        self._candidates = candidates
        self._scores = scores
        self._passed_over = passed_over
        self._unseen = unseen  # replicas that were not looked at, of many

    def explain(self) -> dict[str, Any]:
        """Return the decision as plain data for the request log; figures as they were then."""
        told: dict[str, Any] = {"replica": self.view.replica_id}
        if self.last_resort is not None:
            told["last_resort"] = self.last_resort.value
        if self._scores:
            told["scores"] = {
                view.replica_id: {
                    name: round(value, 3) for name, value in zip(SCORE_NAMES, scores, strict=True)
                }
                for view, scores in zip(self._candidates, self._scores, strict=True)
            }
            told["cached_tokens"] = self.cached_tokens
        if self._passed_over:
            told["passed_over"] = {
                view.replica_id: obstacle.value for view, obstacle in self._passed_over
            }
        if self._unseen:
            told["not_looked_at"] = self._unseen
        return told

    def summary(self) -> str:
        """Return it in one line of ASCII for a header: what was chosen, from how many, why."""
        parts = [self.view.replica_id]
        if self.last_resort is not None:
            parts.append(f"last_resort={self.last_resort.value}")
        if self._scores:
            scores = next(
                scores
                for view, scores in zip(self._candidates, self._scores, strict=True)
                if view is self.view
            )
            parts.append(f"of={len(self._scores)}")
            parts += [
                f"{name}={value:.2f}"
                for name, value in zip(SCORE_NAMES, scores, strict=True)
                if name != "work_tokens"
            ]
        if self._passed_over:
            parts.append(f"passed_over={len(self._passed_over)}")
        return "; ".join(parts)
