"""The requests under way: sent, counted over time, and kept when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from backends.sweep.engine_target import Target
from backends.sweep.outcome import Ask, Failure, Outcome
from backends.sweep.saturation import Flow


class UnderWay:
    """One sweep's requests. ``outcomes``: of the present step, in the order in which they ended."""

    def __init__(self, target: Target, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.outcomes: list[Outcome] = []
        self._target = target
        self._intended: dict[int, float] = {}  # by number, of those under way
        self._number = 0
        self._changed_at = clock()
        self._area = 0.0  # requests times seconds
        self._arrivals = 0
        self._began_with = 0
        self._began_at = self._changed_at

    @property
    def count(self) -> int:
        """Requests under way."""
        return len(self._intended)

    async def send(self, ask: Ask, intended_at: float) -> Outcome:
        """Send a request and keep what comes of it; a cancelled one leaves nothing."""
        number = self._number
        self._number += 1
        self._count_up(number, intended_at)
        try:
            outcome = await self._target.ask(ask.body, intended_at)
        finally:
            self._note_change()
            del self._intended[number]
        self.outcomes.append(outcome)
        return outcome

    def give_up(self, intended_at: float) -> None:
        """Note a request that was not sent, because too many are under way."""
        self.outcomes.append(
            Outcome(intended_at, intended_at, intended_at, failure=Failure.NOT_SENT)
        )

    def begin_window(self) -> None:
        """Begin to count the flow."""
        self._note_change()
        self._area = 0.0
        self._arrivals = 0
        self._began_with = self.count
        self._began_at = self._changed_at

    def read_flow(self) -> Flow:
        """Return the flow since the window began."""
        self._note_change()
        seconds = max(self._changed_at - self._began_at, 1e-9)
        return Flow(self._arrivals, self._began_with, self.count, self._area / seconds)

    def count_due(self, before: float, since: float = float("-inf")) -> int:
        """Return the requests under way that were due in this time."""
        return sum(since <= at < before for at in self._intended.values())

    async def wait_for_due(self, before: float, patience_seconds: float) -> None:
        """Wait until all that were due ``before`` ended, at most so long."""
        give_up_at = self.clock() + patience_seconds
        while self.count_due(before):
            await asyncio.sleep(0.02)
            if self.clock() >= give_up_at:
                return

    def _count_up(self, number: int, intended_at: float) -> None:
        self._note_change()
        self._intended[number] = intended_at
        self._arrivals += 1

    def _note_change(self) -> None:
        now = self.clock()
        self._area += len(self._intended) * (now - self._changed_at)
        self._changed_at = now
