"""Clients that ask again as soon as they are answered: each organization gets its share of the slots."""

from __future__ import annotations

import heapq
import random
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.dataplane.queue_flows import Ticket
from gateway.dataplane.queue_order import INTERACTIVE, FairOrder

Item = tuple[str, float]  # organization, what it really costs
AS_LONG_AS = 1_000.0  # tokens that a slot serves in a second
FACTORS = st.sampled_from([1 / 7, 0.2, 0.4, 1.0, 2.0])  # what estimates are, of the real cost


class Deployment:
    """Slots, an order, and for each organization as many clients as there are slots.

    An organization that took more than its share would soon have nobody waiting.
    """

    def __init__(
        self,
        slots: int,
        weights: dict[str, float],
        *,
        wrong_by: dict[str, float],
        costs: tuple[float, ...],
        seed: int,
    ) -> None:
        self.order: FairOrder[Item] = FairOrder()
        self.weights = weights
        self.served: Counter[str] = Counter()
        self._slots, self._wrong_by, self._costs = slots, wrong_by, costs
        self._random = random.Random(seed)
        self._running: list[tuple[float, int, Item, Ticket[Item] | None]] = []
        self._begun = 0
        self._now = 0.0
        for name in sorted(weights) * slots:
            self._arrive(name)

    def _arrive(self, name: str) -> None:
        item = (name, self._random.choice(self._costs))
        if len(self._running) < self._slots and not self.order.waiting:
            self._begin(item, None)
            return
        self.order.add(
            item,
            priority=INTERACTIVE,
            organization_id=name,
            weight=self.weights[name],
            cost=item[1] * self._wrong_by[name],
        )

    def _begin(self, item: Item, ticket: Ticket[Item] | None) -> None:
        self._begun += 1
        ends_at = self._now + item[1] / AS_LONG_AS * self._random.uniform(0.9, 1.1)
        heapq.heappush(self._running, (ends_at, self._begun, item, ticket))

    def serve(self, requests: int) -> float:
        """Serve so many; return the cost served of ``a`` for each of ``b`` meanwhile."""
        before = Counter(self.served)
        for _ in range(requests):
            self._now, _, item, ticket = heapq.heappop(self._running)
            if ticket is not None:
                self.order.correct(ticket, item[1])
            taken = self.order.take()  # before the client has read its answer and asks again
            self._begin(taken.item, taken)
            self.served[item[0]] += round(item[1])
            self._arrive(item[0])
        now = self.served - before
        return now["a"] / now["b"]


@settings(max_examples=60, deadline=None)
@given(
    weight=st.sampled_from([1, 2, 3]),
    more_slots=st.integers(0, 4),
    wrong_by=st.tuples(FACTORS, FACTORS),
    costs=st.lists(st.sampled_from([20.0, 50.0, 100.0]), min_size=1, max_size=4).map(tuple),
    seed=st.integers(0, 2**32),
)
@example(weight=3, more_slots=0, wrong_by=(0.2, 0.2), costs=(50.0,), seed=1)
def test_shares_hold_with_few_clients_and_wrong_estimates(
    weight: int,
    more_slots: int,
    wrong_by: tuple[float, float],
    costs: tuple[float, ...],
    seed: int,
) -> None:
    """Also from the moment that the weights change under those that wait."""
    deployment = Deployment(
        2 * (weight + 1) + more_slots,  # so that the lighter one has two slots and the other waits
        {"a": float(weight), "b": 1.0},
        wrong_by={"a": wrong_by[0], "b": wrong_by[1]},
        costs=costs,
        seed=seed,
    )
    deployment.serve(50)
    assert deployment.serve(600) == pytest.approx(weight, rel=0.2)
    deployment.weights = {"a": 1.0, "b": float(weight)}
    deployment.order.set_weights(deployment.weights)
    assert deployment.serve(600) == pytest.approx(1 / weight, rel=0.2)


def test_a_change_of_weights_holds_for_those_that_wait() -> None:
    order: FairOrder[Item] = FairOrder()
    for name in "ab" * 40:
        order.add((name, 1.0), priority=INTERACTIVE, organization_id=name, weight=1.0, cost=10.0)
    running = [order.take() for _ in range(8)]
    assert Counter(ticket.item[0] for ticket in running) == {"a": 4, "b": 4}
    order.set_weights({"a": 3.0})
    # What runs counts by the new weights, too: a is three slots behind for each of b's.
    served = Counter(order.take().item[0] for _ in range(24))
    assert served == {"a": 20, "b": 4}
    for ticket in running:
        order.correct(ticket, 10.0)
    assert Counter(order.take().item[0] for _ in range(16)) == {"a": 12, "b": 4}


def test_an_estimate_that_was_too_low_counts_for_all_that_run() -> None:
    order: FairOrder[Item] = FairOrder()
    for name in "ab" * 20:
        order.add((name, 1.0), priority=INTERACTIVE, organization_id=name, weight=1.0, cost=10.0)
    running = [order.take() for _ in range(4)]
    ended = next(ticket for ticket in running if ticket.item[0] == "a")
    order.correct(ended, 40.0)  # the other of a that runs is worth 40 as well, those of b 10
    assert [order.take().item[0] for _ in range(6)] == ["b"] * 6


def test_what_nobody_knows_and_what_never_ran_teach_nothing() -> None:
    order: FairOrder[Item] = FairOrder()
    for name in "ab" * 20:
        order.add((name, 1.0), priority=INTERACTIVE, organization_id=name, weight=1.0, cost=10.0)
    first, second = order.take(), order.take()
    order.correct_unknown(first, 9.99)
    order.refund(second)
    assert Counter(order.take().item[0] for _ in range(9)) == {
        first.item[0]: 4,
        second.item[0]: 5,
    }
