"""The arithmetic of the simulated engine: who gets a token when."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.simulated.batch import Batch, Sequence
from backends.simulated.config import Pace

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

    def add(self, name: str, prompt: int, output: int) -> Sequence:
        def listen(_produced: int, is_last: bool) -> None:
            self.tokens.append((name, round(self.at, 6)))
            if is_last:
                self.ended.append(name)

        sequence = Sequence(prompt, output, listen)
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


def test_a_full_cache_makes_wait_and_a_giant_runs_alone() -> None:
    line = Timeline()
    line.add("a", 600, 2)
    line.add("b", 600, 2)
    line.step()
    assert (line.batch.running, line.batch.waiting) == (1, 1)
    line.run()
    line.add("giant", 5000, 1)
    line.run()
    assert line.ended == ["a", "b", "giant"]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 400), st.integers(1, 20)), min_size=1, max_size=20))
def test_everybody_gets_all_tokens_and_twice_the_same(sizes: list[tuple[int, int]]) -> None:
    lines = [Timeline(), Timeline()]
    for line in lines:
        for number, (prompt, output) in enumerate(sizes):
            line.add(str(number), prompt, output)
        line.run()
    assert lines[0].tokens == lines[1].tokens
    assert sorted(lines[0].ended) == sorted(str(number) for number in range(len(sizes)))
    assert lines[0].batch.made_tokens == sum(output for _, output in sizes)
    assert lines[0].batch.read_tokens == sum(prompt for prompt, _ in sizes)


@pytest.mark.parametrize(
    "wrong", [{"max_num_seqs": 0}, {"step_ms": -1.0}, {"step_tokens": 8}, {"max_waiting": -1}]
)
def test_a_pace_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Pace(**wrong)  # type: ignore[arg-type]
