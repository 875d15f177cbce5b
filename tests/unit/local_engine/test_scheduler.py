"""The scheduler's bookkeeping, over a scripted pipeline in place of OpenVINO's."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import cast

import pytest

from backends.local.detokenize import Vocabulary
from backends.local.engine.pipeline import (
    EmptyPromptError,
    Pipeline,
    PromptTooLongError,
)
from backends.local.engine.scheduler import (
    MAX_FAILED_STEPS,
    NOT_STARTED,
    OUT_OF_CACHE,
    STEP_FAILED,
    STEPS_BETWEEN,
    SequenceScheduler,
)
from backends.local.messages import (
    Accepted,
    Cancel,
    Failed,
    Produced,
    Prompt,
    Rejected,
    Sampling,
    SequenceEvent,
    Submit,
    TextPrompt,
)

CONTEXT = 10
PIECE = 3
END = 256


class ScriptedGenerating:
    """Hands out one scripted token a step."""

    def __init__(self, tokens: list[int], max_tokens: int) -> None:
        self._coming = deque(tokens[:max_tokens])
        self._ready: list[int] = []
        self.is_out_of_cache = False
        self.is_cancelled = False

    @property
    def is_finished(self) -> bool:
        return not self._coming and not self.is_out_of_cache

    def step(self) -> None:
        if self._coming and not self.is_cancelled and not self.is_out_of_cache:
            self._ready.append(self._coming.popleft())

    def read_tokens(self) -> list[int]:
        ready, self._ready = self._ready, []
        return ready

    def cancel(self) -> None:
        self.is_cancelled = True


class ScriptedPipeline:
    """Continues each text prompt with the script; a prompt's tokens are its characters."""

    def __init__(self, script: list[int]) -> None:
        self.vocabulary = Vocabulary({bytes([i]): i for i in range(256)} | {b"<end>": END}, {END})
        self.eos_token_id = END
        self.kv_cache_usage = 0.25
        self.script = script
        self.started: dict[int, ScriptedGenerating] = {}
        self.prompts: list[tuple[int, str]] = []  # what was handed over, by which sequence
        self.steps = 0
        self.failing_steps = 0  # how many of the next steps fail
        self.trial: Future[str | None] = Future()

    def encode(self, prompt: Prompt) -> list[int]:
        text = cast("TextPrompt", prompt).text
        if not text:
            raise EmptyPromptError
        if len(text) >= CONTEXT:
            raise PromptTooLongError(len(text))
        return list(text.encode())

    def start(
        self, sequence_id: int, tokens: list[int], sampling: Sampling, max_tokens: int
    ) -> ScriptedGenerating:
        if tokens == list(b"!"):
            raise RuntimeError("refused")
        self.prompts.append((sequence_id, bytes(tokens).decode()))
        self.started[sequence_id] = ScriptedGenerating(self.script, max_tokens)
        return self.started[sequence_id]

    def start_grammar_trial(self, _json_schema: str) -> Future[str | None]:
        return self.trial

    def drop_cancelled(self) -> None:
        assert all(generating.is_cancelled for generating in self.started.values())
        self.started.clear()

    def step(self) -> None:
        self.steps += 1
        if self.failing_steps:
            self.failing_steps -= 1
            raise OverflowError
        for generating in self.started.values():
            generating.step()


def make(
    text: str = "abcdefghij", max_running: int = 2, steps_between: int = STEPS_BETWEEN
) -> tuple[ScriptedPipeline, SequenceScheduler]:
    """Return a scheduler whose sequences all say ``text`` and end."""
    pipeline = ScriptedPipeline([*text.encode(), END])
    scheduler = SequenceScheduler(
        cast("Pipeline", pipeline),
        max_running=max_running,
        context_tokens=CONTEXT,
        piece_tokens=PIECE,
        steps_between=steps_between,
    )
    return pipeline, scheduler


def submit(scheduler: SequenceScheduler, number: int, text: str = "pp", **kw: object) -> object:
    """Submit a prompt and return the answer."""
    sampling = Sampling(**({"max_tokens": None} | kw))  # type: ignore[arg-type]
    (answer,) = scheduler.apply(Submit(number, TextPrompt(text), sampling))
    scheduler.admit()
    return answer


def run(scheduler: SequenceScheduler) -> list[SequenceEvent]:
    """Step until nothing is left to do."""
    events: list[SequenceEvent] = []
    for _ in range(100):
        if not scheduler.has_work:
            return events
        events += scheduler.admit()
        events += scheduler.step()
    pytest.fail("work without end")


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
    (accepted,) = scheduler.apply(Submit(1, TextPrompt("!"), Sampling(max_tokens=None)))
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


@pytest.mark.parametrize("problem", [None, "no grammar"])
def test_a_sequence_with_a_schema_is_answered_when_its_grammar_has_been_tried(
    problem: str | None,
) -> None:
    pipeline, scheduler = make("ab")
    sampling = Sampling(max_tokens=None, json_schema="{}")
    assert scheduler.apply(Submit(1, TextPrompt("p"), sampling)) == []
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


def test_a_sequence_cancelled_while_its_grammar_is_tried_never_starts() -> None:
    pipeline, scheduler = make()
    scheduler.apply(Submit(1, TextPrompt("p"), Sampling(max_tokens=None, json_schema="{}")))
    scheduler.admit()
    scheduler.apply(Cancel(1))
    pipeline.trial.set_result(None)
    assert scheduler.admit() == []
    assert not scheduler.has_grammars_waiting
    assert pipeline.prompts == []
