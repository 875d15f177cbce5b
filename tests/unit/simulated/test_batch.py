"""The arithmetic of the simulated engine: who gets a token when."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.simulated.batch import Batch, Sequence
from backends.simulated.kv_cache import BLOCK_TOKENS, chain_blocks
from backends.simulated.pace import PROFILES, Pace

PACE = Pace(
    prefill_tokens_per_second=1000.0,
    step_ms=10.0,
    step_ms_per_sequence=1.0,
    step_tokens=100,
    max_num_seqs=2,
    kv_cache_tokens=1000,
    max_waiting=1,
)


@dataclass
class Timeline:
    """A batch that is run without a clock."""

    pace: Pace = PACE
    at: float = 0.0
    tokens: list[tuple[str, float]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.batch = Batch(self.pace)

    def add(self, name: str, prompt: int, output: int, blocks: tuple[int, ...] = ()) -> Sequence:
        def listen(_produced: int, is_last: bool) -> None:
            self.tokens.append((name, round(self.at, 6)))
            if is_last:
                self.ended.append(name)

        sequence = Sequence(prompt, output, listen, blocks)
        self.batch.add(sequence)
        return sequence

    def step(self) -> bool:
        seconds = self.batch.begin_step()
        if seconds is None:
            return False
        self.at += seconds
        self.batch.end_step()
        return True

    def run(self) -> None:
        while self.step():
            pass


def test_a_lonely_request_takes_its_prompt_and_a_step_a_token() -> None:
    line = Timeline()
    line.add("a", 50, 3)
    line.run()
    # 50 tokens at 1,000/s beside the first token, then 11 ms each.
    assert line.tokens == [("a", 0.061), ("a", 0.072), ("a", 0.083)]
    assert line.ended == ["a"]


def test_a_long_prompt_is_read_in_pieces() -> None:
    line = Timeline()
    line.add("a", 250, 1)
    line.run()
    assert line.tokens == [("a", pytest.approx(0.250 + 0.010 + 0.010 + 0.011))]


def test_a_step_takes_longer_with_more_sequences_and_the_third_waits() -> None:
    line = Timeline()
    for name in "abc":
        line.add(name, 10, 2)
    assert line.batch.is_full
    line.step()
    assert (line.batch.running, line.batch.waiting) == (2, 1)
    assert line.at == pytest.approx(0.020 + 0.012)
    line.run()
    assert line.ended == ["a", "b", "c"]
    assert line.batch.cache_tokens == 0


def test_who_leaves_gets_nothing_more_and_makes_room_at_once() -> None:
    line = Timeline()
    a, b, c = (line.add(name, 10, 50) for name in "abc")
    line.step()
    line.batch.remove(a)
    line.batch.remove(a)
    line.batch.remove(c)
    assert (line.batch.running, line.batch.waiting) == (1, 0)
    line.add("d", 10, 1)
    line.step()
    assert [name for name, _ in line.tokens] == ["a", "b", "b", "d"]
    line.batch.remove(b)
    assert line.batch.cache_tokens == 0


def test_leaving_in_the_middle_of_a_step() -> None:
    line = Timeline()
    a = line.add("a", 10, 5)
    line.batch.begin_step()
    line.batch.remove(a)
    line.batch.end_step()
    assert line.tokens == []
    assert not line.step()


def test_a_full_cache_makes_wait_and_a_giant_is_refused() -> None:
    line = Timeline()
    line.add("a", 600, 2)
    line.add("b", 600, 2)
    while not line.tokens:
        line.step()
    assert (line.batch.running, line.batch.waiting) == (1, 1)
    assert line.batch.cache_usage == pytest.approx(38 / 62)
    line.run()
    assert line.ended == ["a", "b"]
    with pytest.raises(ValueError, match="cannot run"):
        line.add("giant", 5000, 1)


def test_beyond_the_knee_twice_as_many_take_twice_as_long() -> None:
    pace = Pace(step_ms=10.0, step_ms_per_sequence=0.1, knee_sequences=50)
    assert pace.decode_ms(50) == pytest.approx(15.0)
    assert pace.decode_ms(25) == pytest.approx(12.5)
    assert pace.decode_ms(100) == pytest.approx(30.0)
    assert Pace(step_ms=10.0, step_ms_per_sequence=0.1).decode_ms(100) == pytest.approx(20.0)
    for profile in PROFILES.values():
        times = [profile.decode_ms(sequences) for sequences in range(1, 300)]
        assert times == sorted(times)


def test_a_prompt_that_is_in_the_cache_is_not_read_again() -> None:
    line = Timeline()
    blocks = chain_blocks(list(range(80)), BLOCK_TOKENS)
    first = line.add("a", 80, 2, blocks)
    line.run()
    took = line.at
    second = line.add("b", 80, 2, blocks)
    line.run()
    # All but the last block: the last token is read in any case, and blocks are found whole.
    assert (first.cached_tokens, second.cached_tokens) == (0, 64)
    assert line.at - took == pytest.approx(took - 0.064)
    assert (line.batch.queried_tokens, line.batch.found_tokens) == (160, 64)
    assert (line.batch.read_tokens, line.batch.prompt_tokens) == (96, 160)


def test_without_a_prefix_cache_everything_is_read() -> None:
    line = Timeline(msgspec.structs.replace(PACE, has_prefix_cache=False))
    blocks = chain_blocks(list(range(80)), BLOCK_TOKENS)
    for name in "ab":
        line.add(name, 80, 2, blocks)
    line.run()
    assert (line.batch.found_tokens, line.batch.queried_tokens) == (0, 0)
    assert line.batch.read_tokens == 160


def test_who_came_last_stops_when_the_cache_is_full_and_goes_on_later() -> None:
    line = Timeline(msgspec.structs.replace(PACE, kv_cache_tokens=160))
    line.add("a", 60, 80)
    line.add("b", 60, 40)
    line.run()
    assert line.batch.preemptions == 1
    assert line.ended == ["a", "b"]
    assert len(line.tokens) == 120
    assert line.batch.read_tokens > 120  # b's were read again
    assert line.batch.prompt_tokens == 120


SIZES = st.lists(
    st.tuples(st.integers(1, 300), st.integers(1, 60), st.integers(0, 2), st.integers(0, 30)),
    min_size=1,
    max_size=20,
)


@settings(deadline=None, max_examples=60)
@given(SIZES, st.integers(23, 80))
def test_nothing_is_lost_and_the_cache_holds_no_more_than_it_can(
    sizes: list[tuple[int, int, int, int]], cache_blocks: int
) -> None:
    """Arrivals spread over steps, prompts that share beginnings, a cache that is too small."""
    pace = msgspec.structs.replace(
        PACE, kv_cache_tokens=cache_blocks * BLOCK_TOKENS, max_num_seqs=8, max_waiting=None
    )
    lines = [Timeline(pace), Timeline(pace)]
    for line in lines:
        batch = line.batch
        for number, (prompt, output, family, pause) in enumerate(sizes):
            blocks = chain_blocks([family] * prompt, BLOCK_TOKENS)
            line.add(str(number), prompt, output, blocks)
            for _ in range(pause):
                line.step()
                assert batch.cache.used + batch.cache.idle <= cache_blocks
                assert batch.running <= 8
        for _ in range(200_000):
            if not line.step():
                break
            assert batch.cache.used + batch.cache.idle <= cache_blocks
        assert (batch.running, batch.waiting, batch.cache_tokens) == (0, 0, 0)
        assert sorted(line.ended) == sorted(str(number) for number in range(len(sizes)))
        assert batch.made_tokens == len(line.tokens) == sum(size[1] for size in sizes)
        assert batch.prompt_tokens == sum(size[0] for size in sizes) == batch.queried_tokens
        assert batch.found_tokens <= batch.queried_tokens
        if not batch.preemptions:
            assert batch.read_tokens == batch.prompt_tokens - batch.found_tokens
    assert lines[0].tokens == lines[1].tokens


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_num_seqs": 0},
        {"step_ms": -1.0},
        {"step_tokens": 8},
        {"max_waiting": -1},
        {"kv_cache_tokens": 15},
        {"knee_sequences": 0},
    ],
)
def test_a_pace_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Pace(**wrong)  # type: ignore[arg-type]
