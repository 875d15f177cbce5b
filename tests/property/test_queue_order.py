"""The order of service: fair by weight, first come first served inside, nobody starves."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.queue_flows import Ticket
from gateway.dataplane.queue_order import BATCH, CLASS_SHARES, INTERACTIVE, FairOrder

COSTS = st.floats(min_value=1.0, max_value=10_000.0)
WEIGHTS = st.sampled_from([0.5, 1.0, 2.0, 7.0])
CLASSES = st.sampled_from([INTERACTIVE, BATCH])
Order = FairOrder[tuple[str, int]]


def add(
    order: Order,
    name: str,
    number: int = 0,
    *,
    cost: float = 1.0,
    weight: float = 1.0,
    priority: str = INTERACTIVE,
) -> Ticket[tuple[str, int]]:
    return order.add(
        (name, number), priority=priority, organization_id=name, weight=weight, cost=cost
    )


def take_names(order: Order, times: int) -> list[str]:
    return [order.take().item[0] for _ in range(times)]


@given(
    costs_a=st.lists(COSTS, min_size=20, max_size=60),
    costs_b=st.lists(COSTS, min_size=20, max_size=60),
    weights=st.tuples(WEIGHTS, WEIGHTS),
    others=st.lists(st.tuples(st.sampled_from("cdefg"), COSTS, st.booleans()), max_size=60),
)
def test_service_of_two_that_wait_differs_by_their_largest_requests(
    costs_a: list[float],
    costs_b: list[float],
    weights: tuple[float, float],
    others: list[tuple[str, float, bool]],
) -> None:
    order: Order = FairOrder()
    for cost in costs_a:
        add(order, "a", cost=cost, weight=weights[0])
    for cost in costs_b:
        add(order, "b", cost=cost, weight=weights[1])
    left = {"a": len(costs_a), "b": len(costs_b)}
    served = [0.0]  # of a less of b, by weight, over time
    coming = iter(others)
    while left["a"] and left["b"]:
        for name, cost, goes_on in coming:
            add(order, name, cost=cost)
            if goes_on:
                break
        ticket = order.take()
        name = ticket.item[0]
        if name in left:
            left[name] -= 1
            is_a = name == "a"
            served.append((1 if is_a else -1) * ticket.cost / weights[0 if is_a else 1])
    totals = list(accumulate(served))
    bound = max(costs_a) / weights[0] + max(costs_b) / weights[1]
    # The difference over any span of time, not only since the beginning.
    assert max(totals) - min(totals) <= bound * (1 + 1e-9)


@given(
    weights=st.lists(
        st.decimals("0.01", "100", places=2).map(float), min_size=2, max_size=5, unique=True
    ),
    data=st.data(),
)
def test_served_cost_is_proportional_to_weights_while_all_wait(
    weights: list[float], data: st.DataObject
) -> None:
    """What was served of any two, by weight, differs by no more than a request of each."""
    order: Order = FairOrder()
    largest = 100.0

    def arrive(name: str) -> None:
        cost = data.draw(st.floats(1.0, largest))
        add(order, name, cost=cost, weight=weights[int(name)])

    names = [str(number) for number in range(len(weights))]
    for name in names * 2:
        arrive(name)
    served = dict.fromkeys(names, 0.0)
    for _ in range(60):
        ticket = order.take()
        served[ticket.item[0]] += ticket.cost
        arrive(ticket.item[0])  # so that it never ceases to wait
        by_weight = [served[name] / weight for name, weight in zip(names, weights, strict=True)]
        for one, weight in zip(by_weight, weights, strict=True):
            for other, its_weight in zip(by_weight, weights, strict=True):
                assert abs(one - other) <= largest / weight + largest / its_weight + 1e-6


@given(
    interactive=st.lists(COSTS, min_size=10, max_size=80),
    batch=st.lists(COSTS, min_size=10, max_size=80),
)
def test_each_class_has_its_share_while_both_wait(
    interactive: list[float], batch: list[float]
) -> None:
    order: Order = FairOrder()
    for priority, costs in ((INTERACTIVE, interactive), (BATCH, batch)):
        for cost in costs:
            add(order, priority, cost=cost, priority=priority)
    left = {INTERACTIVE: len(interactive), BATCH: len(batch)}
    served = dict.fromkeys(left, 0.0)
    while all(left.values()):
        ticket = order.take()
        left[ticket.item[0]] -= 1
        served[ticket.item[0]] += ticket.cost
    difference = served[INTERACTIVE] / 0.9 - served[BATCH] / 0.1
    assert -max(batch) / 0.1 <= difference + 1e-6
    assert difference - 1e-6 <= max(interactive) / 0.9


@given(
    st.lists(st.tuples(st.sampled_from("abc"), COSTS, CLASSES, st.booleans()), max_size=80),
    st.data(),
)
def test_first_come_first_served_inside_and_nobody_is_lost(
    arrivals: list[tuple[str, float, str, bool]], data: st.DataObject
) -> None:
    order: Order = FairOrder()
    waiting: list[Ticket[tuple[str, int]]] = []
    taken: list[Ticket[tuple[str, int]]] = []
    for number, (name, cost, priority, is_followed_by_service) in enumerate(arrivals):
        waiting.append(add(order, name, number, cost=cost, priority=priority))
        if data.draw(st.booleans(), label="one leaves"):
            order.remove(waiting.pop(data.draw(st.integers(0, len(waiting) - 1))))
        if is_followed_by_service and waiting:
            taken.append(order.take())
            waiting.remove(taken[-1])
            actual = data.draw(COSTS, label="actual cost")
            order.correct(data.draw(st.sampled_from(taken)), actual)
        assert order.waiting == len(waiting)
        assert order.waiting_cost == pytest.approx(sum(ticket.cost for ticket in waiting))
    while waiting:
        ticket = order.take()
        mates = [other for other in waiting if other.flow is ticket.flow]
        assert ticket is mates[0]
        waiting.remove(ticket)
    with pytest.raises(IndexError):
        order.take()


def test_idle_time_is_no_credit() -> None:
    order: Order = FairOrder()
    for number in range(1000):
        add(order, "busy", number)
    assert take_names(order, 500) == ["busy"] * 500
    for number in range(500):
        add(order, "idle", number)
    assert sorted(take_names(order, 100)) == ["busy"] * 50 + ["idle"] * 50


def test_interactive_goes_first_and_batch_has_its_tenth() -> None:
    order: Order = FairOrder()
    for number in range(100):
        add(order, "batch", number, priority=BATCH)
    assert take_names(order, 10) == ["batch"] * 10
    for number in range(100):
        add(order, "chat", number)
    served = take_names(order, 50)
    assert served[:9] == ["chat"] * 9
    assert served.count("batch") == 5


def test_a_lonely_interactive_request_never_waits_behind_batch() -> None:
    order: Order = FairOrder()
    for number in range(1000):
        add(order, "batch", number, priority=BATCH)
    for number in range(100):
        take_names(order, 5)
        add(order, "chat", number)
        assert order.take().item == ("chat", number)


def test_real_costs_are_charged_later() -> None:
    order: Order = FairOrder()
    for number in range(200):
        add(order, "wrong", number, cost=1.0)
        add(order, "right", number, cost=10.0)
    spent = {"wrong": 0.0, "right": 0.0}
    for _ in range(100):
        ticket = order.take()
        spent[ticket.item[0]] += 10.0
        order.correct(ticket, 10.0)  # what it really was, known at its end
    assert abs(spent["wrong"] - spent["right"]) <= 20.0


@pytest.mark.parametrize("in_flight", [1, 16])
@pytest.mark.parametrize("factor", [0.1, 3.0, 50.0])
def test_wrong_estimates_do_not_move_the_shares(in_flight: int, factor: float) -> None:
    """All are wrong by the same factor, and are put right only when they end, long after."""
    order: Order = FairOrder()
    for number in range(2000):
        for name, priority in (("a", INTERACTIVE), ("b", INTERACTIVE), ("bulk", BATCH)):
            add(order, name, number, cost=10.0 * factor, priority=priority)
    running: list[Ticket[tuple[str, int]]] = []
    spent = Counter[str]()
    for _ in range(1000):
        if len(running) == in_flight:
            ended = running.pop(0)
            order.correct(ended, 10.0)
            spent[ended.item[0]] += 10
        running.append(order.take())
    assert spent["a"] == pytest.approx(spent["b"], abs=10 * in_flight)
    assert spent["bulk"] / spent.total() == pytest.approx(0.1, abs=0.03)


def test_over_estimates_are_refunded_in_full() -> None:
    order: Order = FairOrder()
    for number in range(500):
        add(order, "cheap", number, cost=1000.0)
        add(order, "plain", number, cost=10.0)
    spent = Counter[str]()
    for _ in range(300):
        ticket = order.take()
        actual = 1.0 if ticket.item[0] == "cheap" else 10.0
        order.correct(ticket, actual)
        spent[ticket.item[0]] += int(actual)
    assert abs(spent["cheap"] - spent["plain"]) <= 20


def test_refunds_from_before_an_idle_time_are_no_credit() -> None:
    order: Order = FairOrder()
    for number in range(1000):
        add(order, "always", number)
    for number in range(5):
        add(order, "returns", number, cost=100.0)
    early = [ticket for _ in range(20) if (ticket := order.take()).item[0] == "returns"]
    while len(early) < 5:
        early += [ticket for _ in range(50) if (ticket := order.take()).item[0] == "returns"]
    take_names(order, 200)
    for number in range(100):
        add(order, "returns", number)
    for ticket in early:
        order.correct(ticket, 1.0)
    assert sorted(take_names(order, 20)) == ["always"] * 10 + ["returns"] * 10


def test_who_left_costs_nothing() -> None:
    order: Order = FairOrder()
    gone = [add(order, "a", number, cost=1000.0) for number in range(5)]
    add(order, "a", 9)
    add(order, "b", 9)
    for ticket in gone:
        order.remove(ticket)
    assert take_names(order, 2) == ["a", "b"]


def test_memory_is_bounded_by_who_waits() -> None:
    order: Order = FairOrder()
    for number in range(10):
        add(order, "always", number)
    lane = order._lanes[INTERACTIVE]
    for number in range(5000):
        add(order, "always", number)
        order.take()
        order.remove(add(order, f"visitor {number}"))
        add(order, f"served {number}")
        order.take()
    assert order.waiting == 10
    assert len(lane.heap) < 200
    assert len(lane.flows) < 200


def test_wrong_arguments_are_told() -> None:
    order: Order = FairOrder()
    for weight in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="weight"):
            add(order, "a", weight=weight)
    with pytest.raises(ValueError, match="class"):
        add(order, "a", priority="urgent")
    assert sum(CLASS_SHARES.values()) == pytest.approx(1.0)
