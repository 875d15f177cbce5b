"""A pipeline that says what a script says, in place of OpenVINO's, and a scheduler over it."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import cast

import pytest

from backends.local.detokenize import Vocabulary
from backends.local.engine.pipeline import EmptyPromptError, Pipeline, PromptTooLongError
from backends.local.engine.reading_line import STEPS_BETWEEN
from backends.local.engine.scheduler import SequenceScheduler
from backends.local.messages import Prompt, Sampling, SequenceEvent, Submit, TextPrompt

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
        self.trials: list[str] = []
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

    def start_grammar_trial(self, json_schema: str) -> Future[str | None]:
        self.trials.append(json_schema)
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
    """Submit a prompt, by default of a request of its own, and return the answer."""
    request_id = cast("int", kw.pop("request_id", number))
    sampling = Sampling(**({"max_tokens": None} | kw))  # type: ignore[arg-type]
    (answer,) = scheduler.apply(Submit(number, request_id, TextPrompt(text), sampling))
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
