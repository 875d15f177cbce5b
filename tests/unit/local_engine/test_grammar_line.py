"""Who waits for a grammar, and for how long: no trial beside a start, none passes beside a trial."""

from __future__ import annotations

from concurrent.futures import Future

from backends.local.detokenize import Vocabulary
from backends.local.engine.grammar_line import GrammarLine
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


def waiting(number: int, schema: str) -> Sequence:
    sampling = Sampling(max_tokens=None, json_schema=schema)
    vocabulary = Vocabulary({b"a": 0}, set())
    return Sequence(number, [1], sampling, max_tokens=9, eos_token_id=0, vocabulary=vocabulary)


def passed(line: GrammarLine, *, may_try: bool = True) -> list[tuple[int, str | None]]:
    """Return who passes now, with the problem."""
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


def test_a_problem_is_remembered_as_well_and_keeps_nobody_else() -> None:
    trials, line = make("bad", "good", "bad")
    passed(line)
    trials.end("no such grammar")
    assert passed(line) == [(1, "no such grammar")]
    assert trials.asked == ["bad", "good"]
    trials.end()
    assert passed(line) == [(2, None), (3, "no such grammar")]


def test_nobody_passes_while_a_trial_compiles_not_even_with_a_known_schema() -> None:
    trials, line = make("a")
    passed(line)
    trials.end()
    passed(line)
    line.add(waiting(2, "b"))
    line.add(waiting(3, "a"))
    assert passed(line) == []
    assert trials.asked == ["a", "b"]
    trials.end()
    assert passed(line) == [(2, None), (3, None)]


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


def test_results_are_forgotten_in_the_order_of_their_last_use() -> None:
    trials, line = make()
    for number in range(1001):
        line.add(waiting(number, str(number)))
        passed(line)
        trials.end()
        passed(line)
    line.add(waiting(1, "1"))
    assert passed(line) == [(1, None)]
    line.add(waiting(0, "0"))
    assert passed(line) == []
    assert trials.asked[-1] == "0"
