"""Which sequences run, which wait, and what each step brought them."""

from __future__ import annotations

import logging
from collections import deque

from backends.local.engine.pipeline import (
    EmptyPromptError,
    InvalidPromptError,
    Pipeline,
    PromptTooLongError,
)
from backends.local.engine.sequence import Sequence
from backends.local.messages import (
    Accepted,
    Cancel,
    Command,
    EngineStats,
    Failed,
    Produced,
    Rejected,
    SequenceEvent,
    Submit,
)

log = logging.getLogger("forebay.engine.local")

NOT_STARTED = "The engine could not start this request."
OUT_OF_CACHE = "The key-value cache is too small for this request."


class SequenceScheduler:
    """Runs up to ``max_running`` sequences together, the others wait in arrival order.

    The waiting line is ours, not the pipeline's, so that what runs and what waits is known exactly.
    """

    def __init__(self, pipeline: Pipeline, *, max_running: int, context_tokens: int) -> None:
        self._pipeline = pipeline
        self._max_running = max_running
        self._context_tokens = context_tokens
        self._waiting: deque[Sequence] = deque()
        self._running: dict[int, Sequence] = {}
        self._has_cancelled = False  # the pipeline still holds a request that we gave up
        self._prompt_tokens = 0
        self._generation_tokens = 0
        self._finished = {"stop": 0, "length": 0}
        self._failed = 0

    @property
    def has_work(self) -> bool:
        """Whether another step would do anything."""
        return bool(self._running or self._waiting or self._has_cancelled)

    def apply(self, command: Command) -> list[SequenceEvent]:
        """Obey a command; returns what the other side must hear at once."""
        if isinstance(command, Cancel):
            self._cancel(command.sequence_id)
            return []
        return [self._submit(command)]

    def _submit(self, command: Submit) -> SequenceEvent:
        try:
            prompt = self._pipeline.encode(command.prompt)
        except EmptyPromptError:
            return Rejected(command.sequence_id, "The prompt cannot be empty.", "prompt")
        except InvalidPromptError as error:
            return Rejected(command.sequence_id, str(error), "prompt")
        except PromptTooLongError as error:
            return Rejected(command.sequence_id, self._too_long(error.tokens), "input_tokens")
        room = self._context_tokens - len(prompt)
        wanted = command.sampling.max_tokens
        sequence = Sequence(
            command.sequence_id,
            prompt,
            command.sampling,
            max_tokens=room if wanted is None else min(wanted, room),
            eos_token_id=self._pipeline.eos_token_id,
            vocabulary=self._pipeline.vocabulary,
        )
        self._waiting.append(sequence)
        return Accepted(command.sequence_id, len(prompt))

    def _too_long(self, tokens: int) -> str:
        return (
            f"This model's maximum context length is {self._context_tokens} tokens. However, your "
            f"prompt contains at least {tokens} input tokens, which leaves no room for output "
            "tokens. Please reduce the length of the input prompt. "
            f"(parameter=input_tokens, value={tokens})"
        )

    def _cancel(self, sequence_id: int) -> None:
        sequence = self._running.pop(sequence_id, None)
        if sequence is not None:
            self._release(sequence)
            return
        self._waiting = deque(s for s in self._waiting if s.sequence_id != sequence_id)

    def close(self) -> None:
        """Give up everything, so that the pipeline ends without complaint about leaked blocks."""
        self._waiting.clear()
        for sequence_id in list(self._running):
            self._cancel(sequence_id)
        if self._has_cancelled:
            self.step()

    def _release(self, sequence: Sequence) -> None:
        if sequence.generating is not None:
            sequence.generating.cancel()
            self._has_cancelled = True

    def admit(self) -> list[SequenceEvent]:
        """Start the sequences that have a place, in arrival order; return those that failed."""
        failures: list[SequenceEvent] = []
        while self._waiting and len(self._running) < self._max_running:
            sequence = self._waiting.popleft()
            try:
                sequence.generating = self._pipeline.start(
                    sequence.sequence_id, sequence.prompt, sequence.sampling, sequence.max_tokens
                )
            except RuntimeError as error:
                self._failed += 1
                log.error("sequence %d not started: %s", sequence.sequence_id, error)  # noqa: TRY400
                failures.append(Failed(sequence.sequence_id, NOT_STARTED))
            else:
                self._running[sequence.sequence_id] = sequence
        return failures

    def step(self) -> list[SequenceEvent]:
        """Generate at most one token for each running sequence; return what came."""
        self._pipeline.step()
        self._has_cancelled = False
        events: list[SequenceEvent] = []
        for sequence in list(self._running.values()):
            event = self._collect(sequence)
            if event is not None:
                events.append(event)
        return events

    def _collect(self, sequence: Sequence) -> SequenceEvent | None:
        generating = sequence.generating
        if generating is None:
            return None
        tokens = generating.read_tokens()
        if tokens:
            return self._advance(sequence, tokens)
        if generating.is_out_of_cache:
            del self._running[sequence.sequence_id]
            self._failed += 1
            return Failed(sequence.sequence_id, OUT_OF_CACHE)
        if generating.is_finished:
            return self._finish(sequence, sequence.end_early())
        return None  # its prompt is still being processed

    def _advance(self, sequence: Sequence, tokens: list[int]) -> Produced:
        before = sequence.output_tokens
        produced = sequence.take(tokens)
        if before == 0:
            self._prompt_tokens += len(sequence.prompt)
        self._generation_tokens += sequence.output_tokens - before
        return self._finish(sequence, produced) if produced.finish_reason else produced

    def _finish(self, sequence: Sequence, produced: Produced) -> Produced:
        del self._running[sequence.sequence_id]
        self._finished[produced.finish_reason or "stop"] += 1
        if sequence.generating is not None and not sequence.generating.is_finished:
            self._release(sequence)  # a stop string or stop token, of which the pipeline knows not
        return produced

    def stats(self) -> EngineStats:
        """Return the gauges and counters of this moment."""
        return EngineStats(
            running=len(self._running),
            waiting=len(self._waiting),
            kv_cache_usage=self._pipeline.kv_cache_usage if self._running else 0.0,
            prompt_tokens=self._prompt_tokens,
            generation_tokens=self._generation_tokens,
            finished_stop=self._finished["stop"],
            finished_length=self._finished["length"],
            failed=self._failed,
        )
