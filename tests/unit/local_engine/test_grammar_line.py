"""Who waits for a grammar, and for how long: no trial beside a start, no start beside a trial."""

from __future__ import annotations

from concurrent.futures import Future

from hypothesis import given
from hypothesis import strategies as st

from backends.local.detokenize import Vocabulary
from backends.local.engine.grammar_line import MAX_KNOWN, OLDEST_EACH, GrammarLine
from backends.local.engine.sequence import Sequence
from backends.local.messages import Sampling


class Trials:
    """Trials that end when the test says so."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._futures: list[Future[str | None]] = []

    def start(self, schema: str) -> Future[str | None]:
        self.asked.append(schema)
        self._futures.append(Future())
        return self._futures[-1]

    def end(self, problem: str | None = None) -> None:
        self._futures[-1].set_result(problem)


def make(*schemas: str) -> tuple[Trials, GrammarLine]:
    """Return a line in which sequences 1, 2, ... wait for these schemas."""
    trials = Trials()
    line = GrammarLine(trials.start)
    for number, schema in enumerate(schemas, start=1):
        line.add(waiting(number, schema))
    return trials, line


def waiting(number: int, schema: str, cost_ms: int = 0) -> Sequence:
    sampling = Sampling(max_tokens=None, json_schema=schema, grammar_cost_ms=cost_ms)
    vocabulary = Vocabulary({b"a": 0}, set())
    return Sequence(
        *(number, number, [1], sampling), max_tokens=9, eos_token_id=0, vocabulary=vocabulary
    )


def passed(line: GrammarLine, *, may_try: bool = True) -> list[tuple[int, str | None]]:
    """Return who passes now, with the problem."""
    line.take_result()
    verdicts = line.pass_on(may_try=may_try)
    return [(verdict.sequence.sequence_id, verdict.problem) for verdict in verdicts]


def test_a_schema_is_tried_once_and_its_result_holds_for_all_who_have_it() -> None:
    trials, line = make("a", "a", "a")
    assert passed(line) == []
    assert passed(line) == []
    assert len(line) == 3
    trials.end()
    assert passed(line) == [(1, None), (2, None), (3, None)]
    assert trials.asked == ["a"]
    line.add(waiting(4, "a"))
    assert passed(line, may_try=False) == [(4, None)]
    assert len(line) == 0
    assert not line.is_busy


def test_a_problem_is_remembered_as_well_and_keeps_nobody_else() -> None:
    trials, line = make("bad", "good", "bad")
    passed(line)
    trials.end("no such grammar")
    assert passed(line) == [(1, "no such grammar"), (3, "no such grammar")]
    assert trials.asked == ["bad", "good"]
    trials.end()
    assert passed(line) == [(2, None)]


def test_a_known_schema_passes_beside_a_trial_but_is_held_back_from_the_compiler() -> None:
    trials, line = make("a")
    passed(line)
    trials.end()
    passed(line)
    line.add(waiting(2, "b"))
    known = waiting(3, "a")
    line.add(known)
    assert passed(line, may_try=False) == [(3, None)]
    assert line.hold_back(known)  # a trial is due
    assert line.take_result() == []
    passed(line)
    assert trials.asked == ["a", "b"]
    assert line.take_result() == []
    line.add(waiting(4, "c"))
    trials.end()
    assert line.take_result() == [known]  # before the next trial
    assert (line.held_back, trials.asked) == (0, ["a", "b"])
    assert line.hold_back(waiting(5, "a"))
    passed(line, may_try=False)
    line.remove(4)  # nobody wants the next trial any more
    assert [sequence.sequence_id for sequence in line.take_result()] == [5]
    assert not line.hold_back(known)


def test_no_trial_begins_while_someone_who_passed_is_still_to_start() -> None:
    trials, line = make("a", "b")
    assert passed(line, may_try=False) == []
    assert trials.asked == []
    passed(line)
    trials.end()
    assert passed(line) == [(1, None)]
    assert trials.asked == ["a"]  # 1 has just passed
    assert passed(line, may_try=False) == []
    assert trials.asked == ["a"]
    passed(line)
    assert trials.asked == ["a", "b"]


def test_who_leaves_is_passed_over_and_a_trial_begun_for_it_is_not_lost() -> None:
    trials, line = make("a", "b")
    passed(line)
    line.remove(1)
    line.remove(99)
    trials.end()
    assert passed(line) == []
    assert trials.asked == ["a", "b"]
    line.clear()
    line.add(waiting(3, "a"))
    trials.end()
    assert passed(line) == [(3, None)]


def test_a_cheap_schema_goes_before_dear_ones_that_came_first() -> None:
    trials, line = make()
    for number in range(8):
        line.add(waiting(number, f"dear {number}", 3000))
    passed(line)
    line.add(waiting(9, "cheap", 5))
    trials.end()
    passed(line)  # 0 starts
    passed(line)
    assert trials.asked == ["dear 0", "cheap"]


@given(st.lists(st.integers(0, 5), max_size=20), st.lists(st.integers(0, 3), max_size=40))
def test_every_schema_is_tried_within_a_bounded_number_of_trials(
    costs: list[int], arrivals: list[int]
) -> None:
    trials, line = make()
    bound: dict[
        str, int
    ] = {}  # by schema: the trials at whose end it has been tried, at the latest
    came = 0

    def come(cost: int) -> None:
        nonlocal came
        came += 1
        bound[str(came)] = len(trials.asked) + OLDEST_EACH * (len(line) + 1)
        line.add(waiting(came, str(came), cost))

    for cost in costs:
        come(cost)
    while len(line):
        passed(line)
        for _ in range(arrivals.pop() if arrivals else 0):
            come(0)  # ever more that is cheap
        trials.end()
        passed(line, may_try=False)
        assert len(trials.asked) <= came
    assert all(trials.asked.index(schema) < latest for schema, latest in bound.items())


def test_results_are_forgotten_in_the_order_of_their_last_use() -> None:
    trials, line = make()
    for number in range(MAX_KNOWN + 1):
        line.add(waiting(number, str(number)))
        passed(line)
        trials.end()
        passed(line)
    line.add(waiting(1, "1"))
    assert passed(line) == [(1, None)]
    line.add(waiting(0, "0"))
    assert passed(line) == []
    assert trials.asked[-1] == "0"
