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
"Start-time Fair Queueing" (1996), theorem 1. What is charged while a request runs, and when it has
ended, says ``queue_flows.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from gateway.dataplane.queue_flows import Lane, Ticket

ItemT = TypeVar("ItemT")

INTERACTIVE = "interactive"
BATCH = "batch"
# Of the cost served while both classes wait.
CLASS_SHARES: Mapping[str, float] = {INTERACTIVE: 0.9, BATCH: 0.1}
# Cost of the cheapest request, in tokens: one that cost nothing would go first for ever.
MIN_COST = 1.0


class FairOrder(Generic[ItemT]):
    """The order of all that wait for one deployment."""

    def __init__(self) -> None:
        self.waiting = 0
        self._lanes: dict[str, Lane[ItemT]] = {
            name: Lane(share) for name, share in CLASS_SHARES.items()
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
        flow = lane.get_flow(organization_id, weight)
        cost = max(cost, MIN_COST)
        self._added += 1
        ticket = Ticket(
            item,
            lane,
            flow,
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
        charge = ticket.cost * flow.ratio.value
        self._virtual = max(self._virtual, lane.tag)
        lane.tag += charge / lane.share
        lane.virtual = max(lane.virtual, flow.tag)
        flow.tag += charge / flow.weight
        flow.running_cost += ticket.cost
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

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Take other weights, by organization, 1 where none is named; for those that wait, too."""
        for lane in self._lanes.values():
            for organization_id, flow in lane.flows.items():
                weight = weights.get(organization_id, 1.0)
                if weight != flow.weight:
                    lane.set_weight(flow, weight)

    def correct(self, ticket: Ticket[ItemT], actual_cost: float) -> None:
        """Charge what one that was taken really cost, instead of the estimate; once.

        A refund reaches back to where the organization began to wait, and not behind that: it was
        overcharged while it waited, and must not gain from the time before.
        """
        flow, ratio = ticket.flow, ticket.flow.ratio
        charged = flow.running_cost * ratio.value
        flow.running_cost -= ticket.cost
        actual_cost = max(actual_cost, MIN_COST)
        ticket.lane.ratio.learn(actual_cost, ticket.cost)
        ratio.learn(actual_cost, ticket.cost)
        if ticket.period == self._period:  # else that account is closed
            ticket.lane.recharge(flow, actual_cost + flow.running_cost * ratio.value - charged)

    def correct_unknown(self, ticket: Ticket[ItemT], likely_cost: float) -> None:
        """Charge ``likely_cost`` for one whose real cost nobody knows: it was cut off, or has failed.

        One that took less than its estimate teaches nothing: its answer would have been longer.
        """
        if likely_cost >= ticket.cost:
            self.correct(ticket, likely_cost)
            return
        flow = ticket.flow
        charged = ticket.cost * flow.ratio.value
        flow.running_cost -= ticket.cost
        if ticket.period == self._period:
            ticket.lane.recharge(flow, max(likely_cost, MIN_COST) - charged)

    def refund(self, ticket: Ticket[ItemT]) -> None:
        """Give back the charge of one that was taken and never ran; nothing is learned from it."""
        flow = ticket.flow
        flow.running_cost -= ticket.cost
        if ticket.period == self._period:
            ticket.lane.recharge(flow, -ticket.cost * flow.ratio.value)

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

    def _get_lane(self, priority: str) -> Lane[ItemT]:
        lane = self._lanes.get(priority)
        if lane is None:
            raise ValueError(f"there is no priority class {priority!r}")
        return lane


def _tag(lane: Lane[ItemT]) -> float:
    return lane.tag
