"""Which sequences run, which wait, and what each step brought them."""

from __future__ import annotations

import logging
from collections import deque

from backends.local.engine.grammar_line import GrammarLine
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
    Sampling,
    SequenceEvent,
    Submit,
)

log = logging.getLogger("forebay.engine.local")

NOT_STARTED = "The engine could not start this request."
OUT_OF_CACHE = "The key-value cache is too small for this request."
STEP_FAILED = "The engine failed while it worked on this request."

PIECE_TOKENS = 128  # of a long prompt, how many are read before others have their turn
# Steps between two pieces while others generate: a piece takes as long as some twenty of their tokens.
STEPS_BETWEEN = 8
MAX_FAILED_STEPS = 3  # one after the other; then the engine process had better start anew
_READ_ONLY = Sampling(max_tokens=1, temperature=0.0)


class SequenceScheduler:
    """Runs up to ``max_running`` sequences together, the others wait in arrival order.

    The waiting line is ours, not the pipeline's, so that what runs and what waits is known exactly.

    A long prompt is read in pieces, one prompt at a time: the pipeline works off prompts in the order
    in which they come, and would let everyone else wait for the whole of it. A piece is a request for
    the prompt up to there; the pipeline finds the pieces before it in its prefix cache. Those who
    generate meanwhile have some steps to themselves after each piece.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        max_running: int,
        context_tokens: int,
        piece_tokens: int = PIECE_TOKENS,
        steps_between: int = STEPS_BETWEEN,
    ) -> None:
        self._pipeline = pipeline
        self._piece_tokens = piece_tokens
        self._steps_between = steps_between
        self._steps_owed = 0  # to those who generate, before the next piece is read
        self._max_running = max_running
        self._context_tokens = context_tokens
        self._waiting: deque[Sequence] = deque()
        self._running: dict[int, Sequence] = {}
        self._reading: deque[Sequence] = deque()  # of the running, those with a long prompt to read
        self._grammars = GrammarLine(pipeline.start_grammar_trial)
        self._failed_steps = 0
        self._has_cancelled = False  # the pipeline still holds a request that we gave up
        self._prompt_tokens = 0
        self._generation_tokens = 0
        self._finished = {"stop": 0, "length": 0}
        self._failed = 0

    @property
    def has_work(self) -> bool:
        """Whether another step would do anything."""
        return bool(self._running or self._waiting or self._has_cancelled)

    @property
    def has_grammars_waiting(self) -> bool:
        """Whether a grammar is being compiled that somebody waits for; no step is needed for it."""
        return len(self._grammars) > 0

    def apply(self, command: Command) -> list[SequenceEvent]:
        """Obey a command; returns what the other side must hear at once."""
        if isinstance(command, Cancel):
            self._cancel(command.sequence_id)
            return []
        return self._submit(command)

    def _submit(self, command: Submit) -> list[SequenceEvent]:
        try:
            prompt = self._pipeline.encode(command.prompt)
        except EmptyPromptError:
            return [Rejected(command.sequence_id, "The prompt cannot be empty.", "prompt")]
        except InvalidPromptError as error:
            return [Rejected(command.sequence_id, str(error), "prompt")]
        except PromptTooLongError as error:
            return [Rejected(command.sequence_id, self._too_long(error.tokens), "input_tokens")]
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
        if command.sampling.json_schema is not None:
            self._grammars.add(sequence)  # accepted once its grammar is known to compile
            return []
        return [self._accept(sequence)]

    def _accept(self, sequence: Sequence) -> Accepted:
        self._waiting.append(sequence)
        return Accepted(sequence.sequence_id, len(sequence.prompt))

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
        self._grammars.remove(sequence_id)

    def close(self) -> None:
        """Give up everything, so that the pipeline ends without complaint about leaked blocks."""
        self._waiting.clear()
        self._grammars.clear()
        for sequence_id in list(self._running):
            self._cancel(sequence_id)
        if self._has_cancelled:
            self.step()

    def _release(self, sequence: Sequence) -> None:
        if sequence in self._reading:
            self._reading.remove(sequence)
        if sequence.generating is not None:
            sequence.generating.cancel()
            self._has_cancelled = True

    def admit(self) -> list[SequenceEvent]:
        """Start the sequences that have a place, in arrival order; return what is to be told."""
        events = self._take_verdicts()
        while self._waiting and len(self._running) < self._max_running:
            sequence = self._waiting.popleft()
            self._running[sequence.sequence_id] = sequence
            if self._has_more_to_read(sequence):
                self._reading.append(sequence)
            else:
                events += self._start(sequence)
        is_turn = self._steps_owed <= 0 or len(self._running) == len(self._reading)
        if self._reading and self._reading[0].generating is None and is_turn:
            events += self._read_on(self._reading[0])  # behind the prompts that came meanwhile
        return events

    def _take_verdicts(self) -> list[SequenceEvent]:
        if not self._grammars:
            return []
        begun = (*self._running.values(), *self._waiting)
        may_try = not any(s.sampling.json_schema and not s.output_tokens for s in begun)
        events: list[SequenceEvent] = []
        for verdict in self._grammars.pass_on(may_try=may_try):
            if verdict.problem is None:
                events.append(self._accept(verdict.sequence))
            else:
                problem = f"Grammar error: {verdict.problem}"
                events.append(Rejected(verdict.sequence.sequence_id, problem, "response_format"))
        return events

    def _read_on(self, sequence: Sequence) -> list[SequenceEvent]:
        if not self._has_more_to_read(sequence):
            self._reading.popleft()
            return self._start(sequence)
        sequence.read_tokens += self._piece_tokens
        return self._hand_over(sequence, sequence.prompt[: sequence.read_tokens], _READ_ONLY, 1)

    def _has_more_to_read(self, sequence: Sequence) -> bool:
        """Whether what is left of the prompt is too long to be read at once."""
        return len(sequence.prompt) - sequence.read_tokens > self._piece_tokens

    def _start(self, sequence: Sequence) -> list[SequenceEvent]:
        sequence.read_tokens = len(sequence.prompt)
        return self._hand_over(sequence, sequence.prompt, sequence.sampling, sequence.max_tokens)

    def _hand_over(
        self, sequence: Sequence, prompt: list[int], sampling: Sampling, max_tokens: int
    ) -> list[SequenceEvent]:
        try:
            sequence.generating = self._pipeline.start(
                sequence.sequence_id, prompt, sampling, max_tokens
            )
        except RuntimeError as error:
            log.error("sequence %d not started: %s", sequence.sequence_id, error)  # noqa: TRY400
            return [self._fail(sequence, NOT_STARTED)]
        return []

    def _fail(self, sequence: Sequence, message: str) -> Failed:
        del self._running[sequence.sequence_id]
        if sequence in self._reading:
            self._reading.remove(sequence)
        self._failed += 1
        return Failed(sequence.sequence_id, message)

    def step(self) -> list[SequenceEvent]:
        """Generate at most one token for each running sequence; return what came.

        A step that fails is the end of everything that was in it, and of no more. Raises what the
        pipeline raises when it fails again and again.
        """
        try:
            self._pipeline.step()
        except Exception:
            self._failed_steps += 1
            if self._failed_steps >= MAX_FAILED_STEPS:
                raise
            log.exception("a step failed, and %d sequences with it", len(self._running))
            return self._give_up_running()
        self._failed_steps = 0
        self._has_cancelled = False
        self._steps_owed -= 1
        events: list[SequenceEvent] = []
        for sequence in list(self._running.values()):
            event = self._collect(sequence)
            if event is not None:
                events.append(event)
        return events

    def _give_up_running(self) -> list[SequenceEvent]:
        events: list[SequenceEvent] = []
        for sequence in list(self._running.values()):
            if sequence.generating is not None:
                sequence.generating.cancel()
            events.append(self._fail(sequence, STEP_FAILED))
        self._pipeline.drop_cancelled()
        self._has_cancelled = False
        return events

    def _collect(self, sequence: Sequence) -> SequenceEvent | None:
        generating = sequence.generating
        if generating is None:
            return None
        tokens = generating.read_tokens()
        is_piece = sequence in self._reading  # then the token it ends with is nobody's
        if tokens and not is_piece:
            return self._advance(sequence, tokens)
        if generating.is_out_of_cache:
            return self._fail(sequence, OUT_OF_CACHE)
        if not generating.is_finished:
            return None  # its prompt is still being processed
        if is_piece:
            sequence.generating = None
            self._steps_owed = self._steps_between
            return None
        return self._finish(sequence, sequence.end_early())

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
            waiting=len(self._waiting) + len(self._grammars),
            kv_cache_usage=self._pipeline.kv_cache_usage if self._running else 0.0,
            prompt_tokens=self._prompt_tokens,
            generation_tokens=self._generation_tokens,
            finished_stop=self._finished["stop"],
            finished_length=self._finished["length"],
            failed=self._failed,
        )
