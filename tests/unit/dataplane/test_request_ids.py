"""Request ids: all different, in the order of their times, whatever the counter does."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gateway.dataplane.request_ids import RequestIds


@pytest.mark.parametrize("begin", [0, 0xFFE, 0x7FFFFFFF, 0xFFFFFFF0])
def test_ids_of_one_millisecond_count_on(begin: int) -> None:
    ids = RequestIds()
    ids._count = begin
    made = [ids.next(1_700_000_000_000_000 + step // 50) for step in range(10_000)]
    assert {len(each) for each in made} == {36}
    assert len({each[:-8] for each in made}) == 1
    counters = [int(each[-8:], 16) for each in made]
    assert counters[0] == begin + 1
    assert all((later - earlier) % (1 << 32) == 1 for earlier, later in pairwise(counters))


def test_ids_of_later_milliseconds_are_greater() -> None:
    ids = RequestIds()
    made = [ids.next(1_700_000_000_000_000 + step * 1_000) for step in range(10_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
