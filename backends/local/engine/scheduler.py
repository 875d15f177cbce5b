"""Which sequences run, which wait, and what each step brought them."""

from __future__ import annotations

import logging

from backends.local.engine.grammar_line import GrammarLine
from backends.local.engine.new_sequence import new_sequence
from backends.local.engine.pipeline import Pipeline
from backends.local.engine.reading_line import PIECE_TOKENS, STEPS_BETWEEN, ReadingLine
from backends.local.engine.sequence import Sequence
from backends.local.engine.waiting_line import WaitingLine
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

MAX_FAILED_STEPS = 3  # one after the other; then the engine process had better start anew
_READ_ONLY = Sampling(max_tokens=1, temperature=0.0)


class SequenceScheduler:
    """Runs up to ``max_running`` sequences together; the requests of the others take turns.

    The waiting line is ours, not the pipeline's, so that what runs and what waits is known exactly.
    A sequence has a place from its turn to its end.

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
        self._context_tokens = context_tokens
        self._waiting = WaitingLine(max_running)
        self._running: dict[int, Sequence] = {}  # those who have a place
        self._reading = ReadingLine(piece_tokens, steps_between)  # of the running
        self._grammars = GrammarLine(pipeline.start_grammar_trial)
        self._failed_steps = 0
        self._has_cancelled = False  # the pipeline still holds a request that we gave up
        self._prompt_tokens = 0
        self._generation_tokens = 0
        self._finished = {"stop": 0, "length": 0}
        self._failed = 0

    @property
    def has_work(self) -> bool:
        """Whether another step would do anything, or start somebody."""
        is_held = self._grammars.held_back > 0  # then all who may start have, by the last admit()
        is_running = len(self._running) > self._grammars.held_back
        return bool(is_running or (self._waiting and not is_held) or self._has_cancelled)

    @property
    def has_grammars_waiting(self) -> bool:
        """Whether the compiler of grammars is waited for; no step is needed for that."""
        return self._grammars.is_busy or self._grammars.held_back > 0

    def apply(self, command: Command) -> list[SequenceEvent]:
        """Obey a command; returns what the other side must hear at once."""
        if isinstance(command, Cancel):
            self._cancel(command.sequence_id)
            return []
        return self._submit(command)

    def _submit(self, command: Submit) -> list[SequenceEvent]:
        sequence = new_sequence(command, self._pipeline, self._context_tokens)
        if isinstance(sequence, Rejected):
            return [sequence]
        if command.sampling.json_schema is not None:
            self._grammars.add(sequence)  # accepted once its grammar is known to compile
            return []
        return [self._accept(sequence)]

    def _accept(self, sequence: Sequence) -> Accepted:
        self._waiting.add(sequence)
        return Accepted(sequence.sequence_id, len(sequence.prompt))

    def _cancel(self, sequence_id: int) -> None:
        sequence = self._running.get(sequence_id)
        if sequence is not None:
            self._free_place(sequence)
            self._release(sequence)
            return
        self._waiting.remove(sequence_id)
        self._grammars.remove(sequence_id)

    def close(self) -> None:
        """Give up everything, so that the pipeline ends without complaint about leaked blocks."""
        self._waiting.clear()
        self._grammars.clear()
        for sequence_id in list(self._running):
            self._cancel(sequence_id)
        if self._has_cancelled:
            self.step()

    def _free_place(self, sequence: Sequence) -> None:
        """Give a sequence's place to whoever is next."""
        del self._running[sequence.sequence_id]
        self._waiting.give_back(sequence)
        self._reading.remove(sequence)
        self._grammars.remove(sequence.sequence_id)

    def _release(self, sequence: Sequence) -> None:
        if sequence.generating is not None:
            sequence.generating.cancel()
            self._has_cancelled = True

    def admit(self) -> list[SequenceEvent]:
        """Give places to those whose turn it is and start them; return what is to be told."""
        events: list[SequenceEvent] = []
        for held in self._grammars.take_result():
            events += self._start(held)
        events += self._take_verdicts()
        while (sequence := self._waiting.take_next()) is not None:
            self._running[sequence.sequence_id] = sequence
            if self._reading.has_more_to_read(sequence):
                self._reading.add(sequence)
            else:
                events += self._start_or_hold(sequence)
        reader = self._reading.find_next(len(self._running))
        if reader is not None:
            events += self._read_on(reader)  # behind the prompts that came meanwhile
        return events

    def _take_verdicts(self) -> list[SequenceEvent]:
        """Let those pass whose grammar has been tried, or have the next one tried.

        The pipeline asks the compiler for a grammar when a sequence that has one makes its first
        token. No trial runs beside that: the two take turns.
        """
        if not self._grammars:
            return []
        may_try = not any(map(self._asks_compiler, self._running.values()))
        events: list[SequenceEvent] = []
        for verdict in self._grammars.pass_on(may_try=may_try):
            if verdict.problem is None:
                events.append(self._accept(verdict.sequence))
            else:
                problem = f"Grammar error: {verdict.problem}"
                member = verdict.sequence.sampling.grammar_member
                events.append(Rejected(verdict.sequence.sequence_id, problem, member))
        return events

    def _asks_compiler(self, sequence: Sequence) -> bool:
        has_begun = sequence.generating is not None and sequence not in self._reading
        has_grammar = sequence.sampling.json_schema is not None
        return has_grammar and has_begun and not sequence.output_tokens

    def _read_on(self, sequence: Sequence) -> list[SequenceEvent]:
        if not self._reading.has_more_to_read(sequence):
            self._reading.take_out_first()
            return self._start_or_hold(sequence)
        return self._hand_over(sequence, self._reading.next_piece(sequence), _READ_ONLY, 1)

    def _start_or_hold(self, sequence: Sequence) -> list[SequenceEvent]:
        if sequence.sampling.json_schema is not None and self._grammars.hold_back(sequence):
            return []
        return self._start(sequence)

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
        self._free_place(sequence)
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
        self._reading.note_step()
        events: list[SequenceEvent] = []
        for sequence in list(self._running.values()):
            event = self._collect(sequence)
            if event is not None:
                events.append(event)
        return events

    def _give_up_running(self) -> list[SequenceEvent]:
        events: list[SequenceEvent] = []
        for sequence in list(self._running.values()):
            if sequence.generating is not None:  # else it was not in the step
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
            self._reading.note_piece()
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
        self._free_place(sequence)
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
