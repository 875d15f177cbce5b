"""One request in the queue: while it waits, and while it runs.

Nothing here awaits but :class:`Waiter` itself, and it gives back what it was given if its task is
cancelled at that very moment, so no slot is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Protocol

from gateway.dataplane.queue_flows import Ticket


class SlotOwner(Protocol):
    """What a slot and a waiter need of their queue."""

    def take_back(self, slot: Slot, actual_cost: float | None) -> None:
        """Take a slot back from who ran in it."""

    def take_back_unused(self, slot: Slot) -> None:
        """Take a slot back from who never ran in it."""

    def drop(self, waiter: Waiter) -> None:
        """Let go of one that does not wait any more."""


class QueueRefusedError(Exception):
    """No slot for this request; after ``retry_after_seconds`` there would be one."""

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class QueueFullError(QueueRefusedError):
    """All places of the route are taken, by nobody who has to give way, or this one had to."""


class QueueTimeoutError(QueueRefusedError):
    """The request has waited as long as its route allows."""


class Slot:
    """The right to run one request; :meth:`leave` gives it to the next."""

    __slots__ = ("_queue", "cost", "entered_at", "ticket")

    def __init__(
        self, queue: SlotOwner, cost: float, entered_at: float, ticket: Ticket[Waiter] | None
    ) -> None:
        self._queue: SlotOwner | None = queue
        self.cost = cost
        self.entered_at = entered_at  # the loop's time
        self.ticket = ticket  # None: it never waited, and nobody was kept waiting by it

    def leave(self, actual_cost: float | None = None) -> None:
        """Let the next one run. A second call does nothing.

        ``actual_cost`` puts the organization's account right, in the units of the estimate; None:
        nobody knows it, and the time that the slot was held tells.
        """
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.take_back(self, actual_cost)

    def withdraw(self) -> None:
        """Leave without having used the slot: nothing is charged or measured."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.take_back_unused(self)


class Waiter:
    """A request's place in the queue. Await it once: it gives the Slot, or raises.

    Raises :class:`QueueFullError` when it had to give way, :class:`QueueTimeoutError`, or what
    :meth:`abandon` was given.
    """

    __slots__ = (
        "_future",
        "_outcome",
        "_queue",
        "is_waiting",
        "organization_id",
        "priority",
        "route_id",
        "ticket",
        "timer",
        "weight",
    )

    ticket: Ticket[Waiter]  # from the moment it waits

    def __init__(
        self,
        queue: SlotOwner,
        future: asyncio.Future[None],
        *,
        route_id: str,
        organization_id: str,
        weight: float,
        priority: str,
    ) -> None:
        self._queue = queue
        self._future = future
        self._outcome: Slot | Exception | None = None
        self.route_id = route_id
        self.organization_id = organization_id
        self.weight = weight
        self.priority = priority
        self.is_waiting = False
        self.timer: asyncio.TimerHandle | None = None

    def __await__(self) -> Generator[object, None, Slot]:
        """Wait for the slot."""
        try:
            yield from self._future.__await__()
        except BaseException:
            self._give_back()
            raise
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, Slot):
            return outcome
        if outcome is None:
            raise RuntimeError("A waiter is awaited once.")
        raise outcome

    def abandon(self, error: Exception) -> None:
        """Stop waiting at once; whoever awaits gets ``error``, even if a slot was on its way."""
        if self._future.done() and self._outcome is None:
            return  # delivered, or its task was cancelled
        self._give_back()
        self.conclude(error)

    def conclude(self, outcome: Slot | Exception) -> None:
        """Wake who awaits, with a slot or an error (for the queue)."""
        self._outcome = outcome
        if not self._future.done():
            self._future.set_result(None)

    @property
    def is_cancelled(self) -> bool:
        """Whether its task was cancelled and has not run since."""
        return self._future.cancelled()

    def _give_back(self) -> None:
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, Slot):
            outcome.withdraw()
        elif self.is_waiting:
            self._queue.drop(self)
