"""Where requests wait while their deployment is saturated: one queue per deployment and worker.

``capacity`` requests run at a time; each holds a :class:`Slot` and leaves it once. Who waits is
bounded per route in number and in time; who is next says ``queue_order.py``, who must give way
``queue_places.py``, when to come back ``queue_drain.py``. ``queue_slot.py`` has what callers hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from gateway.dataplane.queue_drain import DrainRate, SlotSpeed
from gateway.dataplane.queue_order import MIN_COST, FairOrder
from gateway.dataplane.queue_places import RoutePlaces
from gateway.dataplane.queue_slot import QueueFullError, QueueTimeoutError, Slot, Waiter


class FairQueue:
    """The slots of one deployment in this worker, and who waits for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, capacity: int | None) -> None:
        """``capacity`` requests run at a time; None: any number, and nobody ever waits."""
        self._loop = loop
        self._order: FairOrder[Waiter] = FairOrder()
        self._places: dict[str, RoutePlaces[Waiter]] = {}  # of the routes with somebody waiting
        self._drain = DrainRate()
        self._speed = SlotSpeed()  # of real costs
        self._capacity = _checked(capacity)
        self._running: set[Slot] = set()

    @property
    def capacity(self) -> int | None:
        """Most requests that run at a time."""
        return self._capacity

    @property
    def running(self) -> int:
        """Requests that run."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return self._order.waiting

    @property
    def waiting_cost(self) -> float:
        """Estimated cost of the requests that wait."""
        return self._order.waiting_cost

    def set_capacity(self, capacity: int | None) -> None:
        """Change the capacity; what runs above a lower one runs to its end."""
        self._capacity = _checked(capacity)
        self._fill()

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Take other weights of organizations, by id, also of those that wait; 1 if not named."""
        if self._order.waiting:
            self._order.set_weights(weights)

    def try_enter(self, cost: float) -> Slot | None:
        """Return a slot if one is free and nobody waits, else None."""
        capacity = self._capacity
        if capacity is not None and (len(self._running) >= capacity or self._order.waiting):
            return None
        slot = Slot(self, cost, self._loop.time(), None)
        self._running.add(slot)
        return slot

    def enter(
        self,
        *,
        route_id: str,
        organization_id: str,
        weight: float,
        priority: str,
        cost: float,
        size: int,
        deadline_seconds: float,
    ) -> Waiter:
        """Wait for a slot, with at most ``size`` of the route, for ``deadline_seconds`` at the most.

        ``cost`` is the estimate in tokens of work, ``priority`` one of queue_order's classes. The
        waiter must be awaited at once. Raises :class:`QueueFullError`, and ``ValueError`` for a
        weight that is not above 0 or an unknown class.
        """
        waiter = Waiter(
            self,
            self._loop.create_future(),
            route_id=route_id,
            organization_id=organization_id,
            weight=weight,
            priority=priority,
        )
        slot = self.try_enter(cost)
        if slot is not None:
            waiter.conclude(slot)
            return waiter
        self._make_place(waiter, size)
        waiter.ticket = self._order.add(
            waiter,
            priority=priority,
            organization_id=organization_id,
            weight=weight,
            cost=cost,
        )
        waiter.is_waiting = True
        self._places.setdefault(route_id, RoutePlaces()).add(waiter)
        waiter.timer = self._loop.call_later(deadline_seconds, self._expire, waiter)
        return waiter

    def retry_after_seconds(self, priority: str) -> float:
        """Return after how long a slot is free for one who comes after all that now wait in a class.

        That is when what is left of those that run, and then those that wait, have been served.
        """
        return self._drain.retry_after_seconds(
            self._order.cost_ahead(priority),
            self._running,
            slots=self._capacity or 1,
            now=self._loop.time(),
        )

    def take_back(self, slot: Slot, actual_cost: float | None) -> None:
        """Take a slot back from who ran in it (``Slot.leave``)."""
        now = self._loop.time()
        held = now - slot.entered_at
        if self._capacity is not None:  # else nobody ever asks
            self._drain.record(max(slot.cost, MIN_COST), held, now)
            if actual_cost is not None:
                self._speed.record(actual_cost, held, now)
        if slot.ticket is not None:
            if actual_cost is not None:
                self._order.correct(slot.ticket, actual_cost)
            else:  # cut off, or failed: the time that it held its slot tells
                self._order.correct_unknown(slot.ticket, held * self._speed.per_second)
        self._running.discard(slot)
        if self._order.waiting:
            self._fill()

    def take_back_unused(self, slot: Slot) -> None:
        """Take a slot back from who never ran in it (``Slot.withdraw``)."""
        if slot.ticket is not None:
            self._order.refund(slot.ticket)
        self._running.discard(slot)
        self._fill()

    def drop(self, waiter: Waiter) -> None:
        """Let go of one that does not wait any more."""
        self._order.remove(waiter.ticket)
        self._free_place(waiter)

    def _make_place(self, waiter: Waiter, size: int) -> None:
        places = self._places.get(waiter.route_id)
        if (0 if places is None else places.taken) < size:
            return
        weaker = None
        if places is not None and size > 0:
            weaker = places.find_who_gives_way(waiter.organization_id, waiter.weight)
        if weaker is None:
            raise self._full(waiter.priority)
        self.drop(weaker)
        weaker.conclude(self._full(weaker.priority))

    def _full(self, priority: str) -> QueueFullError:
        return QueueFullError(
            "The queue of this model is full.",
            retry_after_seconds=self.retry_after_seconds(priority),
        )

    def _expire(self, waiter: Waiter) -> None:
        if not waiter.is_waiting:
            return
        self.drop(waiter)
        waiter.conclude(
            QueueTimeoutError(
                "The request waited too long in the queue of this model.",
                retry_after_seconds=self.retry_after_seconds(waiter.priority),
            )
        )

    def _free_place(self, waiter: Waiter) -> None:
        waiter.is_waiting = False
        if waiter.timer is not None:
            waiter.timer.cancel()
            waiter.timer = None
        places = self._places[waiter.route_id]
        places.remove(waiter)
        if not places.taken:
            del self._places[waiter.route_id]

    def _fill(self) -> None:
        """Let in who is next, while there is room."""
        order = self._order
        while order.waiting and (self._capacity is None or len(self._running) < self._capacity):
            ticket = order.take()
            waiter = ticket.item
            self._free_place(waiter)
            if waiter.is_cancelled:
                order.refund(ticket)
                continue
            slot = Slot(self, ticket.cost, self._loop.time(), ticket)
            self._running.add(slot)
            waiter.conclude(slot)


def share_of_capacity(capacity: int | None, workers: int, index: int) -> int | None:
    """Return the part of a deployment's capacity that worker ``index`` of ``workers`` has.

    The parts differ by one at the most and add up to ``capacity``, except when there are more
    workers than capacity: each has 1 then, for a worker with 0 would serve nobody, so together they
    run up to ``workers - capacity`` requests too many.
    """
    if not 0 <= index < workers:
        raise ValueError(f"there is no worker {index} of {workers}")
    if capacity is None:
        return None
    return max(1, capacity // workers + (index < capacity % workers))


def share_of_places(size: int, workers: int, index: int) -> int:
    """Return how many of a route's ``size`` waiting requests may wait in worker ``index``.

    They are shared like a capacity; 0 is 0 everywhere.
    """
    return 0 if size < 1 else share_of_capacity(size, workers, index) or 1


def _checked(capacity: int | None) -> int | None:
    if capacity is not None and capacity < 1:
        raise ValueError(f"capacity must be at least 1, got {capacity}")
    return capacity
