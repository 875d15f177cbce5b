"""The KV cache: equal beginnings are found, and it never holds more than it has room for."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from backends.simulated.kv_cache import KvCache, chain_blocks


def test_equal_beginnings_have_equal_blocks() -> None:
    first = chain_blocks(b"a" * 64 + b"b" * 64 + b"c" * 64, 64)
    second = chain_blocks(b"a" * 64 + b"b" * 64 + b"d" * 64, 64)
    assert len(first) == 3
    assert first[:2] == second[:2]
    assert first[2] != second[2]
    assert chain_blocks(b"b" * 64, 64)[0] != first[1]  # the same bytes elsewhere are another block
    assert chain_blocks(b"a" * 64, 64, "adapter") != first[:1]
    assert chain_blocks(b"a" * 63, 64) == ()
    assert chain_blocks(list(range(33)), 16)[0] == chain_blocks(list(range(16)), 16)[0]


def test_the_longest_idle_goes_first_and_of_a_prompt_its_end() -> None:
    cache = KvCache(4)
    for names in ((1, 2), (3, 4)):
        assert cache.take((), 2)
        assert all(cache.name_one(name) for name in names)
    cache.release((1, 2), 0)
    cache.release((3, 4), 0)
    assert cache.count_found((1, 2)) == 2
    assert cache.take((), 1)
    assert cache.count_found((1, 2)) == 1
    assert cache.count_found((2,)) == 0
    assert cache.take((3, 4), 1)
    assert (cache.used, cache.idle) == (4, 0)
    assert not cache.take((), 1)


def test_a_block_in_use_by_two_is_one_block() -> None:
    cache = KvCache(2)
    cache.take((), 1)
    cache.name_one(7)
    assert cache.take((7,), 1)
    assert cache.used == 2
    assert not cache.name_one(7)  # computed twice at the same time: only one is findable
    cache.release((7,), 1)
    cache.release((7,), 0)
    assert (cache.used, cache.idle) == (0, 1)
    cache.forget()
    assert cache.count_found((7,)) == 0


class CacheMachine(RuleBasedStateMachine):
    """Prompts of few different blocks come and go at random."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = KvCache(8)
        self.held: list[tuple[list[int], int]] = []  # names, unnamed

    @rule(names=st.lists(st.integers(1, 6), unique=True, max_size=5), more=st.integers(0, 3))
    def take(self, names: list[int], more: int) -> None:
        found = self.cache.count_found(names)
        new = len(names) - found + more
        before = self.cache.used
        if not self.cache.take(names[:found], new):
            assert self.cache.used == before
            return
        owned = names[:found] + [name for name in names[found:] if self.cache.name_one(name)]
        self.held.append((owned, len(names) + more - len(owned)))

    @rule(which=st.integers(0, 20))
    def release(self, which: int) -> None:
        if self.held:
            self.cache.release(*self.held.pop(which % len(self.held)))

    @invariant()
    def counts_agree(self) -> None:
        names = {name for owned, _ in self.held for name in owned}
        assert self.cache.used == len(names) + sum(unnamed for _, unnamed in self.held)
        assert self.cache.used + self.cache.idle <= self.cache.blocks
        assert not names & set(self.cache.idle_names())
        assert all(self.cache.count_found((name,)) for name in names)


CacheMachine.TestCase.settings = settings(deadline=None, max_examples=30, stateful_step_count=30)
TestCacheMachine = CacheMachine.TestCase
