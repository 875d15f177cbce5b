"""The scheduler's bookkeeping, over a scripted pipeline in place of OpenVINO's."""

from __future__ import annotations

from typing import cast

import pytest

from backends.local.engine.scheduler import (
    MAX_FAILED_STEPS,
    NOT_STARTED,
    OUT_OF_CACHE,
    STEP_FAILED,
)
from backends.local.messages import (
    Accepted,
    Cancel,
    Failed,
    Produced,
    Rejected,
    Sampling,
    Submit,
    TextPrompt,
)
from tests.unit.local_engine.scripted_pipeline import CONTEXT, END, make, run, submit


def test_the_context_limits_output_and_every_token_is_counted() -> None:
    _, scheduler = make()
    assert submit(scheduler, 1) == Accepted(1, 2)
    events = [cast("Produced", event) for event in run(scheduler)]
    assert [event.output_tokens for event in events] == list(range(1, CONTEXT - 2 + 1))
    assert "".join(event.text for event in events) == "abcdefgh"
    assert events[-1].finish_reason == "length"
    assert [event.finish_reason for event in events[:-1]] == [None] * 7
    stats = scheduler.stats()
    assert (stats.prompt_tokens, stats.generation_tokens) == (2, 8)
    assert (stats.finished_length, stats.running, stats.kv_cache_usage) == (1, 0, 0.0)


def test_the_end_token_counts_and_shows_nothing() -> None:
    _, scheduler = make("ab")
    submit(scheduler, 1)
    assert run(scheduler)[-1] == Produced(1, "", 3, "stop", None)


def test_text_held_for_a_stop_string_comes_with_the_end() -> None:
    _, scheduler = make("ab")
    submit(scheduler, 1, stop_strings=("bc",))
    texts = [cast("Produced", event).text for event in run(scheduler)]
    assert texts == ["a", "", "b"]


def test_a_stop_string_ends_the_sequence_before_another_token_is_made() -> None:
    pipeline, scheduler = make()
    submit(scheduler, 1, stop_strings=("cd",))
    assert run(scheduler)[-1] == Produced(1, "", 4, "stop", "cd")
    assert pipeline.started[1].is_cancelled
    assert scheduler.stats().generation_tokens == 4


def test_a_stop_token_ends_the_sequence_unless_too_few_tokens_have_come() -> None:
    _, scheduler = make("abcabc")
    submit(scheduler, 1, stop_token_ids=(ord("b"),), min_tokens=3)
    events = [cast("Produced", event) for event in run(scheduler)]
    assert "".join(event.text for event in events) == "abca"
    assert (events[-1].output_tokens, events[-1].stop_reason) == (5, ord("b"))


def test_an_ignored_end_token_is_one_more_token() -> None:
    pipeline, scheduler = make("a")
    pipeline.script = [ord("a"), END, ord("b")]
    submit(scheduler, 1, is_eos_ignored=True, max_tokens=3)
    events = [cast("Produced", event) for event in run(scheduler)]
    assert "".join(event.text for event in events) == "ab"
    assert (events[-1].output_tokens, events[-1].finish_reason) == (3, "length")


def test_a_pipeline_that_ends_by_itself_ends_the_sequence() -> None:
    pipeline, scheduler = make()
    pipeline.script = [ord("{"), ord("}")]
    submit(scheduler, 1)
    assert run(scheduler)[-1] == Produced(1, "", 2, "stop", None)
    assert scheduler.stats().finished_stop == 1


def test_sequences_beyond_the_limit_wait_in_order() -> None:
    pipeline, scheduler = make("abc", max_running=2)
    for number in (1, 2, 3, 4):
        submit(scheduler, number)
    assert (scheduler.stats().running, scheduler.stats().waiting) == (2, 2)
    ends = [event for event in run(scheduler) if cast("Produced", event).finish_reason]
    assert [event.sequence_id for event in ends] == [1, 2, 3, 4]
    assert list(pipeline.started) == [1, 2, 3, 4]


def test_a_large_request_leaves_places_to_others_and_takes_turns_with_them() -> None:
    pipeline, scheduler = make("abc", max_running=4)
    for number in range(1, 9):
        submit(scheduler, number, request_id=100)
    assert list(pipeline.started) == [1, 2, 3]
    submit(scheduler, 9)
    assert 9 in pipeline.started
    submit(scheduler, 10)
    assert 10 not in pipeline.started
    events = [cast("Produced", event) for event in run(scheduler)]
    ends = [event.sequence_id for event in events if event.finish_reason]
    assert ends[:6] == [1, 2, 3, 9, 4, 10]
    assert sorted(ends) == list(range(1, 11))


def test_cancelling_frees_the_place_and_leaves_the_others_alone() -> None:
    pipeline, scheduler = make(max_running=2)
    for number in (1, 2, 3):
        submit(scheduler, number)
    scheduler.step()
    assert scheduler.apply(Cancel(1)) == []
    assert pipeline.started[1].is_cancelled
    scheduler.apply(Cancel(99))  # unknown: ignored
    events = run(scheduler)
    assert {event.sequence_id for event in events} == {2, 3}
    assert scheduler.stats().finished_length == 2


def test_cancelling_one_that_waits_never_starts_it() -> None:
    pipeline, scheduler = make(max_running=1)
    submit(scheduler, 1)
    submit(scheduler, 2)
    scheduler.apply(Cancel(2))
    run(scheduler)
    assert list(pipeline.started) == [1]


def test_after_the_last_cancel_one_more_step_lets_the_pipeline_drop_it() -> None:
    pipeline, scheduler = make()
    submit(scheduler, 1)
    scheduler.apply(Cancel(1))
    assert scheduler.stats().running == 0
    assert scheduler.has_work
    scheduler.step()
    assert pipeline.steps == 1
    assert not scheduler.has_work


def test_prompts_that_cannot_be_served_are_rejected() -> None:
    _, scheduler = make()
    empty, long = submit(scheduler, 1, ""), submit(scheduler, 2, "p" * CONTEXT)
    assert isinstance(empty, Rejected)
    assert isinstance(long, Rejected)
    assert f"at least {CONTEXT} input tokens" in long.message
    assert not scheduler.has_work


def test_what_the_engine_cannot_go_on_with_fails_alone() -> None:
    pipeline, scheduler = make("ab")
    (accepted,) = scheduler.apply(Submit(1, 1, TextPrompt("!"), Sampling(max_tokens=None)))
    assert accepted == Accepted(1, 1)
    assert scheduler.admit() == [Failed(1, NOT_STARTED)]
    submit(scheduler, 2)
    submit(scheduler, 3)
    pipeline.started[2].is_out_of_cache = True
    events = run(scheduler)
    assert Failed(2, OUT_OF_CACHE) in events
    assert events[-1] == Produced(3, "", 3, "stop", None)
    assert scheduler.stats().failed == 2


def test_closing_cancels_everything() -> None:
    pipeline, scheduler = make(max_running=1)
    submit(scheduler, 1)
    submit(scheduler, 2)
    scheduler.close()
    assert pipeline.started[1].is_cancelled
    assert not scheduler.has_work


def test_a_long_prompt_is_read_in_pieces_and_only_its_real_tokens_count() -> None:
    pipeline, scheduler = make("ab")
    assert submit(scheduler, 1, "12345678") == Accepted(1, 8)
    events = [cast("Produced", event) for event in run(scheduler)]
    assert pipeline.prompts == [(1, "123"), (1, "123456"), (1, "12345678")]
    assert [(event.text, event.output_tokens) for event in events] == [("a", 1), ("b", 2)]
    stats = scheduler.stats()
    assert (stats.prompt_tokens, stats.generation_tokens) == (8, 2)


def test_what_comes_while_a_long_prompt_is_read_goes_before_its_next_piece() -> None:
    pipeline, scheduler = make("ab", max_running=4)
    submit(scheduler, 1, "1234567")
    submit(scheduler, 2, "abcdefg")
    scheduler.step()
    submit(scheduler, 3, "xyz")
    run(scheduler)
    assert pipeline.prompts == [
        *((1, "123"), (3, "xyz"), (1, "123456"), (1, "1234567")),
        *((2, "abc"), (2, "abcdef"), (2, "abcdefg")),  # one long prompt after the other
    ]


def test_long_prompts_of_one_request_are_read_in_turn_with_those_of_others() -> None:
    pipeline, scheduler = make("ab", max_running=8)
    for number in (1, 2, 3):
        submit(scheduler, number, f"{number}234", request_id=100)
    submit(scheduler, 4, "xyzx")
    submit(scheduler, 5, "uvwu")
    run(scheduler)
    whole = [number for number, text in pipeline.prompts if len(text) == 4]
    assert whole == [1, 4, 5, 2, 3]


def test_who_generates_has_steps_between_the_pieces_of_a_long_prompt() -> None:
    pipeline, scheduler = make(max_running=4, steps_between=3)
    submit(scheduler, 1, "x")
    submit(scheduler, 2, "12345678")
    begun_at: dict[int, int] = {}  # length of what is read of the long prompt: at which step
    for _ in range(12):
        scheduler.admit()
        for number, text in pipeline.prompts:
            if number == 2:
                begun_at.setdefault(len(text), pipeline.steps)
        scheduler.step()
    first, second, third = (begun_at[length] for length in (3, 6, 8))
    assert (second - first, third - second) == (4, 4)  # its own step, and three of the other's


def test_cancelling_a_long_prompt_ends_its_reading_and_the_next_one_is_read() -> None:
    pipeline, scheduler = make("ab", max_running=4)
    submit(scheduler, 1, "1234567")
    submit(scheduler, 2, "abcd")
    scheduler.apply(Cancel(1))
    assert pipeline.started[1].is_cancelled
    assert {event.sequence_id for event in run(scheduler)} == {2}
    assert pipeline.prompts == [(1, "123"), (2, "abc"), (2, "abcd")]


def test_a_long_prompt_that_the_cache_cannot_hold_fails_alone() -> None:
    pipeline, scheduler = make("ab", max_running=4)
    submit(scheduler, 1, "1234567")
    pipeline.started[1].is_out_of_cache = True
    submit(scheduler, 2, "abcd")
    events = run(scheduler)
    assert events[0] == Failed(1, OUT_OF_CACHE)
    assert events[-1] == Produced(2, "", 3, "stop", None)


def test_a_failed_step_is_the_end_of_what_ran_and_of_no_more() -> None:
    pipeline, scheduler = make("ab", max_running=2)
    submit(scheduler, 1)
    submit(scheduler, 2, "1234567")
    submit(scheduler, 3)
    pipeline.failing_steps = 1
    assert scheduler.step() == [Failed(1, STEP_FAILED), Failed(2, STEP_FAILED)]
    assert scheduler.stats().failed == 2
    assert run(scheduler)[-1] == Produced(3, "", 3, "stop", None)


def test_a_pipeline_that_fails_again_and_again_is_given_up() -> None:
    pipeline, scheduler = make("ab")
    pipeline.failing_steps = MAX_FAILED_STEPS
    for number in range(1, MAX_FAILED_STEPS):
        submit(scheduler, number)
        assert scheduler.step() == [Failed(number, STEP_FAILED)]
    submit(scheduler, MAX_FAILED_STEPS)
    with pytest.raises(OverflowError):
        scheduler.step()
