"""Charges that the ledger has not said yet: dropped exactly when covered, in bounded memory."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.limits.unposted import SLOT_US, Unposted

A: Any = "window a"
B: Any = "window b"


def total(pairs: Any) -> dict[Any, int]:
    sums: dict[Any, int] = {}
    for window, nano in pairs:
        sums[window] = sums.get(window, 0) + nano
    return sums


def test_what_lies_before_the_position_is_dropped_and_nothing_else() -> None:
    unposted = Unposted()
    for number in range(1, 4):
        unposted.add((1, 100 * number), 10, (A, B) if number == 2 else (A,), number * SLOT_US)
    assert total(unposted.take_covered((1, 99))) == {}
    assert total(unposted.take_covered((1, 200))) == {A: 20, B: 10}
    assert total(unposted.take_covered((1, 200))) == {}
    assert total(unposted.take_covered((2, 0))) == {A: 10}  # a later segment is behind them all


def test_a_slot_goes_as_a_whole() -> None:
    unposted = Unposted()
    unposted.add((1, 100), 1, (A,), 0)
    unposted.add((1, 200), 1, (A,), SLOT_US - 1)
    assert total(unposted.take_covered((1, 150))) == {}
    assert total(unposted.take_covered((1, 200))) == {A: 2}


def test_what_is_told_late_does_not_drop_what_came_behind_it() -> None:
    """Charges that are added up are told after some whose records lie behind theirs."""
    unposted = Unposted()
    unposted.add((1, 200), 5, (A,), 0)
    unposted.add((1, 100), 1, (A,), 1)
    assert total(unposted.take_covered((1, 100))) == {}
    assert total(unposted.take_covered((1, 200))) == {A: 6}


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.integers(1, 10), st.integers(0, SLOT_US)),
        min_size=1,
        max_size=2_000,
    ),
    st.integers(0, 2_000),
)
def test_no_charge_is_dropped_before_it_is_covered(
    charges: list[tuple[int, int, int]], position: int
) -> None:
    unposted = Unposted()
    now_us = 0
    ends = [(max(0, number - late), nano) for number, (late, nano, _) in enumerate(charges)]
    for (end, nano), (_, _, passed_us) in zip(ends, charges, strict=True):
        now_us += passed_us
        unposted.add((1, end), nano, (A,), now_us)
    covered = sum(nano for end, nano in ends if end <= position)
    dropped = total(unposted.take_covered((1, position))).get(A, 0)
    assert dropped <= covered
    rest = total(unposted.take_covered((1, len(charges)))).get(A, 0)
    assert dropped + rest == sum(nano for _, nano in ends)


@given(st.lists(st.integers(1, 10), min_size=1, max_size=5000))
def test_days_without_a_feed_lose_nothing_and_stay_small(charges: list[int]) -> None:
    unposted = Unposted()
    for number, nano in enumerate(charges):
        unposted.add((1, number), nano, (A,), number * SLOT_US)
    assert len(unposted._slots) <= 1024
    assert total(unposted.take_covered((1, len(charges)))) == {A: sum(charges)}
