"""What replicas have read: chained blocks, bounded, forgotten at once."""

from __future__ import annotations

import pytest

from routing.prefix_index import BLOCK_BYTES, MAX_BLOCKS, MAX_HOLDERS, PrefixIndex, blocks_of
from routing.sessions import SessionTable

SYSTEM = b"s" * (4 * BLOCK_BYTES)


def test_equal_beginnings_have_equal_blocks_up_to_the_first_difference() -> None:
    first = blocks_of(SYSTEM + b"a" * 3000)
    second = blocks_of(SYSTEM + b"b" * 3000)
    assert len(first) == 6
    assert first[:4] == second[:4]
    assert not set(first[4:]) & set(second[4:])
    assert len(set(first)) == 6  # equal bytes further on are another beginning


def test_what_engines_keep_apart_has_other_blocks() -> None:
    assert not set(blocks_of(SYSTEM)) & set(blocks_of(SYSTEM, salt=1))


@pytest.mark.parametrize(
    ("size", "count"),
    [
        (0, 0),
        (BLOCK_BYTES - 1, 0),
        (BLOCK_BYTES, 1),
        (9 * BLOCK_BYTES, 8),  # from the eighth on they are larger
        (10 * BLOCK_BYTES, 9),
        (63 * BLOCK_BYTES, MAX_BLOCKS - 1),
        (1_000_000, MAX_BLOCKS),
    ],
)
def test_only_whole_blocks_count_and_not_too_many(size: int, count: int) -> None:
    assert len(blocks_of(b"x" * size)) == count


def test_each_replica_matches_as_far_as_it_has_read() -> None:
    index = PrefixIndex()
    index.record("a", (1, 2, 3, 4))
    index.record("b", (1, 2, 9))
    index.record("c", (7,))
    assert index.match((1, 2, 3, 4, 5)) == {"a": 4, "b": 2}
    assert index.match((1,)) == {"a": 1, "b": 1}
    index.record("d", tuple(range(20, 40)))
    assert index.match(tuple(range(20, 40))) == {"d": 64}
    assert index.match((*range(20, 30), 0)) == {"d": 12}
    assert index.match((8, 3)) == {}
    assert index.match(()) == {}


def test_a_replica_is_forgotten_at_once_and_starts_anew() -> None:
    index = PrefixIndex()
    index.record("a", (1, 2, 3))
    index.record("b", (1, 2, 3))
    index.forget("a")
    index.forget("never seen")
    assert index.match((1, 2, 3)) == {"b": 3}
    index.record("a", (1, 2))
    assert index.match((1, 2, 3)) == {"a": 2, "b": 3}


def test_the_least_recently_read_goes_first_and_of_a_prompt_its_end() -> None:
    index = PrefixIndex(limit=6)
    index.record("a", (1, 2, 3))
    index.record("a", (4, 5, 6))
    index.record("a", (1, 2, 3))
    index.record("a", (7,))
    assert len(index) == 6
    assert index.match((1, 2, 3)) == {"a": 3}
    assert index.match((4, 5, 6)) == {"a": 2}


def test_what_a_replica_has_no_room_to_keep_does_not_count() -> None:
    index = PrefixIndex()
    capacity = 40 * BLOCK_BYTES // 4 * 2  # tokens; half of it keeps 40 blocks
    index.record("a", (1, 2), kv_capacity_tokens=capacity)
    for number in range(3):
        index.record("a", tuple(range(number * 100 + 100, number * 100 + 110)))
    assert index.match((1, 2)) == {"a": 2}
    index.record("a", (50, 51, 52, 53))
    assert index.match((1, 2)) == {}
    index.record("a", (1, 2))
    assert index.match((1, 2)) == {"a": 2}


def test_a_block_has_a_bounded_number_of_readers() -> None:
    index = PrefixIndex()
    for number in range(MAX_HOLDERS + 5):
        index.record(str(number), (1,))
    assert set(index.match((1,))) == {str(number) for number in range(5, MAX_HOLDERS + 5)}


def test_sessions_are_bounded_too() -> None:
    table = SessionTable(limit=2)
    table.record(1, "a")
    table.record(2, "b")
    table.record(1, "c")
    table.record(3, "d")
    assert (table.find(1), table.find(2), table.find(3)) == ("c", None, "d")
    assert len(table) == 2
