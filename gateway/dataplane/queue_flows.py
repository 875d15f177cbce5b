"""The organizations of one class that wait, in the order of their tags: what queue_order.py is made of.

Costs are estimates until a request has ended. Where they are too low, whoever is next takes all slots
before any of them is charged as it should be. With few requests more than slots its queue then runs
empty, and others are served to whom nothing is owed: of weights 3 and 1 both get a half. So what runs
is charged at its estimate times what such estimates were too low by: those of the organization, or,
before it is known, of the class. When that is learned anew, or the weight changes, all that runs is
charged anew.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")

_FADE = 0.9  # of what was learned before, with each request that ends
_MOST_WRONG = 8.0  # more is charged only at the end: one long request says little of the next
_HEAP_SLACK = 64  # outdated heap entries and idle organizations that are tolerated


class CostRatio:
    """How much more requests really cost than they were estimated to: from 1 to :data:`_MOST_WRONG`.

    Never less than 1: what was charged too much is given back, and harms nobody.
    """

    __slots__ = ("_actual", "_estimated", "value")

    def __init__(self, value: float = 1.0) -> None:
        """``value``: what holds until one has ended."""
        self.value = value
        self._actual = self._estimated = 0.0

    def learn(self, actual: float, estimated: float) -> None:
        """Count one that has ended."""
        self._actual = self._actual * _FADE + actual
        self._estimated = self._estimated * _FADE + estimated
        self.value = min(max(self._actual / self._estimated, 1.0), _MOST_WRONG)


class Ticket(Generic[ItemT]):
    """One request in the order, and afterwards what is needed to correct its cost."""

    __slots__ = ("cost", "flow", "item", "lane", "number", "period")

    def __init__(
        self,
        item: ItemT,
        lane: Lane[ItemT],
        flow: Flow[ItemT],
        *,
        cost: float,
        number: int,
        period: int,
    ) -> None:
        self.item = item
        self.lane = lane
        self.flow = flow
        self.cost = cost
        self.number = number
        self.period = period


class Flow(Generic[ItemT]):
    """One organization in one class."""

    __slots__ = ("entry_number", "floor", "ratio", "running_cost", "tag", "tickets", "weight")

    def __init__(self, weight: float, ratio: float) -> None:
        self.tickets: OrderedDict[int, Ticket[ItemT]] = OrderedDict()
        self.weight = weight
        self.ratio = CostRatio(ratio)
        self.running_cost = 0.0  # as estimated; in the tag, times ratio / weight
        self.tag = 0.0
        self.floor = 0.0  # virtual time since which it has been waiting without a break
        self.entry_number = -1  # of the one entry in the heap that holds


class Lane(Generic[ItemT]):
    """One class, and its organizations in the order of their tags."""

    __slots__ = (
        "entries",
        "floor",
        "flows",
        "heap",
        "ratio",
        "share",
        "tag",
        "virtual",
        "waiting",
        "waiting_cost",
    )

    def __init__(self, share: float) -> None:
        self.share = share
        self.ratio = CostRatio()
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
        self.flows: dict[str, Flow[ItemT]] = {}
        self.heap: list[tuple[float, int, Flow[ItemT]]] = []

    def get_flow(self, organization_id: str, weight: float) -> Flow[ItemT]:
        """Return the organization's flow, a new one if need be, with its newest weight."""
        flow = self.flows.get(organization_id)
        if flow is None:
            if len(self.flows) > 2 * self.waiting + _HEAP_SLACK:
                self._drop_idle_flows()
            flow = self.flows[organization_id] = Flow(weight, self.ratio.value)
        elif flow.weight != weight:
            self.set_weight(flow, weight)
        return flow

    def set_weight(self, flow: Flow[ItemT], weight: float) -> None:
        """Charge what runs and all that follows by another weight."""
        charged = flow.running_cost * flow.ratio.value
        flow.tag = max(flow.tag + charged / weight - charged / flow.weight, flow.floor)
        flow.weight = weight
        if flow.tickets:
            self.place(flow)

    def recharge(self, flow: Flow[ItemT], difference: float) -> None:
        """Charge so much more or less, but not behind the time since which they wait."""
        self.tag = max(self.tag + difference / self.share, self.floor)
        flow.tag = max(flow.tag + difference / flow.weight, flow.floor)
        if flow.tickets:
            self.place(flow)

    def _drop_idle_flows(self) -> None:
        # Behind the virtual time a tag says nothing: a new flow begins at the same place.
        self.flows = {
            name: flow
            for name, flow in self.flows.items()
            if flow.tickets or flow.tag > self.virtual
        }

    def place(self, flow: Flow[ItemT]) -> None:
        """Put a flow that waits where its tag says."""
        if len(self.heap) > 2 * self.waiting + _HEAP_SLACK:
            self.heap = [entry for entry in self.heap if entry[1] == entry[2].entry_number]
            heapq.heapify(self.heap)
        self.entries += 1
        flow.entry_number = self.entries
        heapq.heappush(self.heap, (flow.tag, self.entries, flow))

    def pop_flow(self) -> Flow[ItemT]:
        """Take the flow with the lowest tag out of the heap; somebody waits."""
        while True:
            _, number, flow = heapq.heappop(self.heap)
            if number == flow.entry_number:
                return flow
