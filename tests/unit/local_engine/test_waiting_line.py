"""Requests share the engine's places: none starves, none takes what is kept for who comes new."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.local.detokenize import Vocabulary
from backends.local.engine.sequence import Sequence
from backends.local.engine.waiting_line import KEPT_SHARE, WaitingLine
from backends.local.messages import Sampling

VOCABULARY = Vocabulary({b"a": 0}, set())


class Engine:
    """Gives places from a line as soon as it may, and checks each one against the rules."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.line = WaitingLine(places)
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []  # in arrival order
        self.patience: dict[
            int, int
        ] = {}  # of requests without a place: places for others till then
        self.begun: list[int] = []  # sequence ids
        self._ids = 0
        self._requests = 0

    def held(self) -> Counter[int]:
        return Counter(sequence.request_id for sequence in self.running)

    def come(self, count: int) -> int:
        """Let a request of ``count`` sequences come; returns its number."""
        self._requests += 1
        for _ in range(count):
            self._ids += 1
            sequence = make_sequence(self._ids, self._requests)
            self.line.add(sequence)
            self.waiting.append(sequence)
        self.serve()
        return self._requests

    def leave(self, sequence: Sequence) -> None:
        """End a sequence that runs, or take out one that waits."""
        if sequence in self.running:
            self.running.remove(sequence)
            self.line.give_back(sequence)
        else:
            self.waiting.remove(sequence)
            self.line.remove(sequence.sequence_id)
        self.serve()

    def serve(self) -> None:
        self._note_who_waits()
        while (sequence := self.line.take_next()) is not None:
            self._check_turn(sequence)
            self.running.append(sequence)
            self.waiting.remove(sequence)
            self.begun.append(sequence.sequence_id)
            self._note_who_waits()
        assert len(self.line) == len(self.waiting)
        self._check_nobody_waits_in_vain()

    def _note_who_waits(self) -> None:
        held = self.held()
        waiting = {sequence.request_id for sequence in self.waiting}
        without = [request_id for request_id in waiting if not held[request_id]]
        before = self.patience
        self.patience = {r: before.get(r, len(waiting) - 1) for r in without}

    def _check_turn(self, taken: Sequence) -> None:
        held, mine = self.held(), taken.request_id
        assert len(self.running) < self.places
        assert held[mine] == min(held[sequence.request_id] for sequence in self.waiting)
        assert not held[mine] or self.places - len(self.running) > self.places // KEPT_SHARE
        assert taken == next(s for s in self.waiting if s.request_id == mine)
        self.patience.pop(mine, None)
        for request_id in self.patience:
            self.patience[request_id] -= 1
            assert self.patience[request_id] >= 0, "passed over too often"

    def _check_nobody_waits_in_vain(self) -> None:
        free = self.places - len(self.running)
        assert not self.waiting or free <= self.places // KEPT_SHARE
        assert not self.patience or free == 0


def make_sequence(sequence_id: int, request_id: int) -> Sequence:
    sampling = Sampling(max_tokens=None)
    return Sequence(
        *(sequence_id, request_id, [1], sampling),
        max_tokens=9,
        eos_token_id=0,
        vocabulary=VOCABULARY,  # type: ignore[arg-type]
    )


@given(
    places=st.integers(1, 9),
    moves=st.lists(st.tuples(st.sampled_from(["come", "end", "end", "leave"]), st.integers(0, 9))),
)
def test_every_request_gets_its_turn(places: int, moves: list[tuple[str, int]]) -> None:
    engine = Engine(places)
    for move, number in moves:
        if move == "come":
            engine.come(number + 1)
        choices = {"end": engine.running, "leave": engine.waiting}.get(move)
        if choices:
            engine.leave(choices[number % len(choices)])
    while engine.running:
        engine.leave(engine.running[0])
    assert not engine.waiting
    assert len(engine.line) == 0
    assert engine.line.take_next() is None


def test_a_newcomer_starts_at_once_beside_a_large_request() -> None:
    engine = Engine(32)
    large = engine.come(128)
    assert engine.held() == {large: 24}
    newcomers = [engine.come(1) for _ in range(8)]
    assert all(engine.held()[newcomer] == 1 for newcomer in newcomers)
    late = engine.come(1)
    assert engine.held()[late] == 0
    engine.leave(engine.running[0])  # the first place that comes free, whosever it was
    assert engine.held()[late] == 1


def test_requests_of_one_sequence_use_every_place_in_arrival_order() -> None:
    engine = Engine(4)
    for _ in range(6):
        engine.come(1)
    assert engine.begun == [1, 2, 3, 4]
    engine.leave(engine.running[2])
    engine.leave(engine.running[0])
    assert engine.begun == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("seed", range(3))
def test_two_large_requests_come_to_share_and_neither_stands_still(seed: int) -> None:
    engine = Engine(32)
    one, other = engine.come(128), engine.come(128)
    assert engine.held() == {one: 24, other: 1}
    draw = random.Random(seed)
    for _ in range(80):
        engine.leave(draw.choice(engine.running))
    held = engine.held()
    assert held[one] + held[other] == 24
    assert abs(held[one] - held[other]) <= 8  # what ends is drawn, what begins makes it even


def test_cancelling_a_large_request_leaves_the_others_in_line() -> None:
    engine = Engine(1)
    engine.come(1)
    engine.come(50)
    last = engine.come(1)
    for sequence in [s for s in engine.waiting if s.request_id == 2]:
        engine.leave(sequence)
    engine.line.remove(99)
    engine.leave(engine.running[0])
    assert engine.held() == {last: 1}
    engine.come(2)
    engine.line.clear()
    assert len(engine.line) == 0
