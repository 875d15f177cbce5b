"""Continuous batching as arithmetic: which sequences a step serves, and how long it takes.

As vLLM's scheduler does it: each running sequence whose prompt has been read gets one token a step;
what is left of the step's tokens reads prompts, in pieces if need be, oldest first; the step that
reads the end of a prompt gives the first token. Simpler than vLLM: a sequence starts only when
its prompt and all of its output fit into the cache, so nothing is ever preempted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from backends.simulated.config import Pace

Listener = Callable[[int, bool], None]  # (tokens so far, whether that is all)


class Sequence:
    """One prompt and the tokens made for it."""

    __slots__ = ("listener", "output_tokens", "produced", "prompt_left", "prompt_tokens")

    def __init__(self, prompt_tokens: int, output_tokens: int, listener: Listener) -> None:
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.listener = listener
        self.prompt_left = prompt_tokens
        self.produced = 0

    @property
    def cache_tokens(self) -> int:
        """What it takes of the cache while it runs."""
        return self.prompt_tokens + self.output_tokens


class Batch:
    """The sequences that run, those that wait, and what has been done."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._running: OrderedDict[int, Sequence] = OrderedDict()
        self._waiting: OrderedDict[int, Sequence] = OrderedDict()
        self._stepped: list[Sequence] = []  # get a token at the end of the present step
        self.cache_tokens = 0  # of running sequences
        self.read_tokens = 0  # of prompts, ever
        self.made_tokens = 0  # of output, ever

    @property
    def running(self) -> int:
        """Sequences that run."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences that wait for a place."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether one more would have to be refused."""
        limit = self._pace.max_waiting
        return limit is not None and len(self._waiting) >= limit

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait for the next step."""
        self._waiting[id(sequence)] = sequence

    def remove(self, sequence: Sequence) -> None:
        """Let go of a sequence, at once and wherever it is; a second time does nothing."""
        if self._running.pop(id(sequence), None) is not None:
            self.cache_tokens -= sequence.cache_tokens
        else:
            self._waiting.pop(id(sequence), None)

    def begin_step(self) -> float | None:
        """Decide what the next step does; return its seconds, None when there is nothing to do."""
        self._admit()
        if not self._running:
            return None
        decoding = [sequence for sequence in self._running.values() if not sequence.prompt_left]
        budget = self._pace.step_tokens - len(decoding)
        read = 0
        for sequence in self._running.values():
            if sequence.prompt_left and read < budget:
                piece = min(sequence.prompt_left, budget - read)
                sequence.prompt_left -= piece
                read += piece
                if not sequence.prompt_left:
                    decoding.append(sequence)
        self.read_tokens += read
        self._stepped = decoding
        pace = self._pace
        milliseconds = pace.step_ms + pace.step_ms_per_sequence * len(decoding)
        return milliseconds / 1000 + read / pace.prefill_tokens_per_second

    def end_step(self) -> None:
        """Give each sequence of the step its token; who left meanwhile gets none."""
        stepped, self._stepped = self._stepped, []
        for sequence in stepped:
            if id(sequence) not in self._running:
                continue
            sequence.produced += 1
            self.made_tokens += 1
            is_last = sequence.produced >= sequence.output_tokens
            if is_last:
                self.remove(sequence)
            sequence.listener(sequence.produced, is_last)

    def _admit(self) -> None:
        pace = self._pace
        while self._waiting and len(self._running) < pace.max_num_seqs:
            number, sequence = next(iter(self._waiting.items()))
            is_fitting = self.cache_tokens + sequence.cache_tokens <= pace.kv_cache_tokens
            if not is_fitting and self._running:
                return  # alone it runs even when it is larger than the cache
            del self._waiting[number]
            self._running[number] = sequence
            self.cache_tokens += sequence.cache_tokens
