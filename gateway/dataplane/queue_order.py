"""Who of those that wait is next: start-time fair queueing, pure and without a clock.

Two levels, each with a virtual time that the request served last has set. Above, the classes
``interactive`` and ``batch`` share what is served by :data:`CLASS_SHARES` while both wait, which is
what "interactive first, and batch does not starve" comes to. Below, the organizations of a class
share by weight. An organization's requests of one class are served in the order of their arrival.

Each class and each organization has a tag: the virtual time at which its next request begins. The
lowest is next; serving moves the tag on by cost / weight. Who comes back from idleness begins at
the present virtual time, so nothing is saved up by waiting, nor by not waiting. When nobody waits
any more, all tags are forgotten: fairness is a promise among those who wait at the same time.

While two organizations of a class wait without a break, what they were served (cost / weight, as
estimated) differs by at most the sum of their largest cost / weight. See Goyal, Vin and Cheng,
"Start-time Fair Queueing" (1996), theorem 1.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Mapping
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")

INTERACTIVE = "interactive"
BATCH = "batch"
# Of the cost served while both classes wait.
CLASS_SHARES: Mapping[str, float] = {INTERACTIVE: 0.9, BATCH: 0.1}
# Cost of the cheapest request, in tokens: one that cost nothing would go first for ever.
MIN_COST = 1.0
_HEAP_SLACK = 64  # outdated heap entries and idle organizations that are tolerated


class Ticket(Generic[ItemT]):
    """One request in the order, and afterwards what is needed to correct its cost."""

    __slots__ = ("cost", "flow", "item", "lane", "number", "period", "weight")

    def __init__(
        self,
        item: ItemT,
        lane: _Lane[ItemT],
        flow: _Flow[ItemT],
        *,
        weight: float,
        cost: float,
        number: int,
        period: int,
    ) -> None:
        self.item = item
        self.lane = lane
        self.flow = flow
        self.weight = weight
        self.cost = cost
        self.number = number
        self.period = period


class _Flow(Generic[ItemT]):
    """One organization in one class."""

    __slots__ = ("entry_number", "floor", "tag", "tickets")

    def __init__(self) -> None:
        self.tickets: OrderedDict[int, Ticket[ItemT]] = OrderedDict()
        self.tag = 0.0
        self.floor = 0.0  # virtual time since which it has been waiting without a break
        self.entry_number = -1  # of the one entry in the heap that holds


class _Lane(Generic[ItemT]):
    """One class, and its organizations in the order of their tags."""

    __slots__ = (
        "entries",
        "floor",
        "flows",
        "heap",
        "share",
        "tag",
        "virtual",
        "waiting",
        "waiting_cost",
    )

    def __init__(self, share: float) -> None:
        self.share = share
        self.tag = 0.0
        self.floor = 0.0  # as a flow's
        self.waiting = 0
        self.waiting_cost = 0.0
        self.entries = 0  # ever pushed
        self.forget()

    def forget(self) -> None:
        """Begin anew, with nobody waiting."""
        self.virtual = 0.0
        self.waiting_cost = 0.0
        self.flows: dict[str, _Flow[ItemT]] = {}
        self.heap: list[tuple[float, int, _Flow[ItemT]]] = []

    def get_flow(self, organization_id: str) -> _Flow[ItemT]:
        """Return the organization's flow, a new one if need be."""
        flow = self.flows.get(organization_id)
        if flow is None:
            if len(self.flows) > 2 * self.waiting + _HEAP_SLACK:
                self._drop_idle_flows()
            flow = self.flows[organization_id] = _Flow()
        return flow

    def _drop_idle_flows(self) -> None:
        # Behind the virtual time a tag says nothing: a new flow begins at the same place.
        self.flows = {
            name: flow
            for name, flow in self.flows.items()
            if flow.tickets or flow.tag > self.virtual
        }

    def place(self, flow: _Flow[ItemT]) -> None:
        """Put a flow that waits where its tag says."""
        if len(self.heap) > 2 * self.waiting + _HEAP_SLACK:
            self.heap = [entry for entry in self.heap if entry[1] == entry[2].entry_number]
            heapq.heapify(self.heap)
        self.entries += 1
        flow.entry_number = self.entries
        heapq.heappush(self.heap, (flow.tag, self.entries, flow))

    def pop_flow(self) -> _Flow[ItemT]:
        """Take the flow with the lowest tag out of the heap; somebody waits."""
        while True:
            _, number, flow = heapq.heappop(self.heap)
            if number == flow.entry_number:
                return flow


class FairOrder(Generic[ItemT]):
    """The order of all that wait for one deployment."""

    def __init__(self) -> None:
        self.waiting = 0
        self._lanes: dict[str, _Lane[ItemT]] = {
            name: _Lane(share) for name, share in CLASS_SHARES.items()
        }
        self._virtual = 0.0
        self._added = 0
        self._period = 0  # counts how often all tags were forgotten

    @property
    def waiting_cost(self) -> float:
        """Estimated cost of all that wait."""
        return sum(lane.waiting_cost for lane in self._lanes.values())

    def cost_ahead(self, priority: str) -> float:
        """Return the most that is served, if nobody comes, before all now waiting in a class are."""
        lane = self._get_lane(priority)
        return min(lane.waiting_cost / lane.share, self.waiting_cost)

    def add(
        self, item: ItemT, *, priority: str, organization_id: str, weight: float, cost: float
    ) -> Ticket[ItemT]:
        """Let ``item`` wait; costs below :data:`MIN_COST` count as that.

        Raises ``ValueError`` for an unknown class or a weight that is not above 0.
        """
        lane = self._get_lane(priority)
        if not weight > 0.0:
            raise ValueError(f"weight must be above 0, got {weight}")
        flow = lane.get_flow(organization_id)
        cost = max(cost, MIN_COST)
        self._added += 1
        ticket = Ticket(
            item,
            lane,
            flow,
            weight=weight,
            cost=cost,
            number=self._added,
            period=self._period,
        )
        if not lane.waiting:
            lane.floor = self._virtual
            lane.tag = max(lane.tag, lane.floor)
        is_first = not flow.tickets
        flow.tickets[ticket.number] = ticket
        self.waiting += 1
        lane.waiting += 1
        lane.waiting_cost += cost
        if is_first:
            flow.floor = lane.virtual
            flow.tag = max(flow.tag, flow.floor)
            lane.place(flow)
        return ticket

    def take(self) -> Ticket[ItemT]:
        """Take the next one out and charge its cost; raises ``IndexError`` when nobody waits."""
        lanes = [lane for lane in self._lanes.values() if lane.waiting]
        if not lanes:
            raise IndexError("nobody waits")
        lane = min(lanes, key=_tag)
        flow = lane.pop_flow()
        _, ticket = flow.tickets.popitem(last=False)
        self._virtual = max(self._virtual, lane.tag)
        lane.tag += ticket.cost / lane.share
        lane.virtual = max(lane.virtual, flow.tag)
        flow.tag += ticket.cost / ticket.weight
        if flow.tickets:
            lane.place(flow)
        else:
            flow.entry_number = -1
        self._count_out(ticket)
        return ticket

    def remove(self, ticket: Ticket[ItemT]) -> None:
        """Take out one that does not wait any more; it costs nothing."""
        flow = ticket.flow
        del flow.tickets[ticket.number]
        if not flow.tickets:
            flow.entry_number = -1  # its entry in the heap holds no more
        self._count_out(ticket)

    def correct(self, ticket: Ticket[ItemT], actual_cost: float) -> None:
        """Charge what one that was taken really cost, instead of the estimate; once.

        A refund reaches back to where the organization began to wait, and not behind that: it was
        overcharged while it waited, and must not gain from the time before.
        """
        if ticket.period != self._period:
            return  # that account is closed
        difference = actual_cost - ticket.cost
        lane, flow = ticket.lane, ticket.flow
        lane.tag = max(lane.tag + difference / lane.share, lane.floor)
        flow.tag = max(flow.tag + difference / ticket.weight, flow.floor)
        if flow.tickets:
            lane.place(flow)

    def _count_out(self, ticket: Ticket[ItemT]) -> None:
        lane = ticket.lane
        self.waiting -= 1
        lane.waiting -= 1
        lane.waiting_cost -= ticket.cost
        if not lane.waiting:
            lane.forget()
        if not self.waiting:
            self._virtual = 0.0
            self._period += 1
            for other in self._lanes.values():
                other.tag = other.floor = 0.0

    def _get_lane(self, priority: str) -> _Lane[ItemT]:
        lane = self._lanes.get(priority)
        if lane is None:
            raise ValueError(f"there is no priority class {priority!r}")
        return lane


def _tag(lane: _Lane[ItemT]) -> float:
    return lane.tag
