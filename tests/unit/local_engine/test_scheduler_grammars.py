"""When sequences with a schema start: after their grammar's trial, and never beside another's."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from backends.local.messages import Accepted, Cancel, Rejected, Sampling, Submit, TextPrompt
from tests.unit.local_engine.scripted_pipeline import make, run, submit


@pytest.mark.parametrize("problem", [None, "no grammar"])
def test_a_sequence_with_a_schema_is_answered_when_its_grammar_has_been_tried(
    problem: str | None,
) -> None:
    pipeline, scheduler = make("ab")
    sampling = Sampling(max_tokens=None, json_schema="{}")
    assert scheduler.apply(Submit(1, 1, TextPrompt("p"), sampling)) == []
    assert scheduler.admit() == []
    assert scheduler.has_grammars_waiting
    assert not scheduler.has_work
    assert scheduler.stats().waiting == 1
    submit(scheduler, 2)  # need not wait
    pipeline.trial.set_result(problem)
    if problem is None:
        assert scheduler.admit() == [Accepted(1, 1)]
        assert {event.sequence_id for event in run(scheduler)} == {1, 2}
    else:
        assert scheduler.admit() == [Rejected(1, "Grammar error: no grammar", "response_format")]
        assert {event.sequence_id for event in run(scheduler)} == {2}
    assert scheduler.stats().waiting == 0


def test_trials_and_the_first_tokens_of_who_has_a_grammar_take_turns() -> None:
    pipeline, scheduler = make("ab", max_running=4)

    def ask(number: int, schema: str) -> None:
        sampling = Sampling(max_tokens=None, json_schema=schema)
        scheduler.apply(Submit(number, number, TextPrompt("p"), sampling))

    pipeline.trial.set_result(None)
    ask(1, "known")
    scheduler.admit()
    assert scheduler.admit() == [Accepted(1, 1)]
    run(scheduler)
    pipeline.trial = Future()
    ask(2, "new")
    scheduler.admit()  # its trial begins
    ask(3, "known")
    ask(4, "newer")
    assert scheduler.admit() == [Accepted(3, 1)]  # has a place, and must not start beside the trial
    assert (list(pipeline.started), scheduler.has_work) == ([1], False)
    trial, pipeline.trial = pipeline.trial, Future()
    trial.set_result(None)
    assert scheduler.admit() == [Accepted(2, 1)]
    assert list(pipeline.started) == [1, 3]
    assert pipeline.trials == ["known", "new"]  # the next one waits for their first tokens
    scheduler.step()
    scheduler.admit()
    assert pipeline.trials == ["known", "new", "newer"]
    assert list(pipeline.started) == [1, 3]
    pipeline.trial.set_result(None)
    assert {event.sequence_id for event in run(scheduler)} == {2, 3, 4}


def test_a_sequence_cancelled_while_its_grammar_is_tried_never_starts() -> None:
    pipeline, scheduler = make()
    scheduler.apply(Submit(1, 1, TextPrompt("p"), Sampling(max_tokens=None, json_schema="{}")))
    scheduler.admit()
    scheduler.apply(Cancel(1))
    pipeline.trial.set_result(None)
    assert scheduler.admit() == []
    assert not scheduler.has_grammars_waiting
    assert pipeline.prompts == []
