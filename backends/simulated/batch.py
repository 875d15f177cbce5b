"""Continuous batching as arithmetic: which sequences a step serves, and how long it takes. Pure.

As vLLM's scheduler does it: each running sequence whose prompt has been read gets one token a step;
what is left of the step's tokens reads prompts, in pieces if need be, those that run before those
that wait; the step that reads the end of a prompt gives the first token. A sequence starts when its
whole prompt fits into the KV cache and takes a block more for every 16 tokens it makes. When there
is none, the sequence that started last gives all of its blocks back, waits before all others and
reads prompt and output again. What the cache already has of a prompt need not be read.

Without a clock::

    batch = Batch(Pace(max_num_seqs=4))
    batch.add(Sequence(320, 100, listener, chain_blocks(token_ids, BLOCK_TOKENS)))
    while (seconds := batch.begin_step()) is not None:
        now += seconds
        batch.end_step()  # calls the listeners of all that got a token
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from backends.simulated.kv_cache import BLOCK_TOKENS, KvCache
from backends.simulated.pace import Pace

Listener = Callable[[int, bool], None]  # (tokens so far, whether that is all)


class Sequence:
    """One prompt and the tokens made for it.

    ``blocks``: names of the prompt's full blocks (:func:`.kv_cache.chain_blocks`); without them
    nothing of it is found in the cache, nor kept there. ``output_tokens``: 0 only reads the prompt.
    ``cached_tokens``: of the prompt, found when the sequence started; 0 before.
    """

    __slots__ = (
        "blocks",
        "cached_tokens",
        "held_blocks",
        "held_names",
        "is_known",
        "listener",
        "named_blocks",
        "output_tokens",
        "produced",
        "prompt_left",
        "prompt_tokens",
    )

    def __init__(
        self,
        prompt_tokens: int,
        output_tokens: int,
        listener: Listener,
        blocks: tuple[int, ...] = (),
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.listener = listener
        self.blocks = blocks[: prompt_tokens // BLOCK_TOKENS]
        self.cached_tokens = 0
        self.prompt_left = prompt_tokens  # after a preemption, output to be read again included
        self.produced = 0
        self.held_blocks = 0
        self.held_names: list[int] = []  # of held blocks, those that have a name
        self.named_blocks = 0  # of ``blocks``, those that have been seen to
        self.is_known = False  # whether the counters of the cache have it already


class Batch:
    """The sequences that run, those that wait, and what has been done."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._running: OrderedDict[int, Sequence] = OrderedDict()
        self._waiting: OrderedDict[int, Sequence] = OrderedDict()
        self._stepped: list[Sequence] = []  # get a token at the end of the present step
        self.cache = KvCache(pace.cache_blocks)
        self.read_tokens = 0  # computed of prompts, ever; what is read again counts again
        self.prompt_tokens = 0  # of prompts that were read to their end, cached ones included
        self.made_tokens = 0  # of output, ever
        self.queried_tokens = 0  # of prompts that were looked up in the cache
        self.found_tokens = 0  # of those, the ones that were there
        self.preemptions = 0
        self.step_tokens = 0  # read and made in the present step

    @property
    def running(self) -> int:
        """Sequences that run."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences that wait for a place."""
        return len(self._waiting)

    @property
    def cache_tokens(self) -> int:
        """Room for so many tokens is in use."""
        return self.cache.used * BLOCK_TOKENS

    @property
    def cache_usage(self) -> float:
        """The part of the cache in use, from 0 to 1; idle blocks count as free, as vLLM's do."""
        return self.cache.used / self.cache.blocks

    @property
    def is_full(self) -> bool:
        """Whether one more would have to be refused."""
        limit = self._pace.max_waiting
        return limit is not None and len(self._waiting) >= limit

    def is_running(self, sequence: Sequence) -> bool:
        """Whether the sequence has started and not ended."""
        return id(sequence) in self._running

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait for the next step. Raises ``ValueError``: it can never fit."""
        size = _blocks_of(sequence.prompt_tokens + sequence.output_tokens)
        if size > self.cache.blocks or sequence.prompt_tokens < 1:
            raise ValueError(
                f"a sequence of {sequence.prompt_tokens} + {sequence.output_tokens} tokens "
                f"cannot run in a cache of {self.cache.blocks} blocks"
            )
        self._waiting[id(sequence)] = sequence

    def remove(self, sequence: Sequence) -> None:
        """Let go of a sequence, at once and wherever it is; a second time does nothing."""
        if self._running.pop(id(sequence), None) is not None:
            self._release(sequence)
        else:
            self._waiting.pop(id(sequence), None)

    def begin_step(self) -> float | None:
        """Decide what the next step does; return its seconds, None when there is nothing to do."""
        if not self._running and not self._waiting:
            return None
        pace = self._pace
        has_room = True
        decoding, reading, cramped = self._sort_out()
        if cramped:
            has_room = self._grow(cramped)
            if not has_room:
                decoding, reading, _ = self._sort_out()
        budget = pace.step_tokens - len(decoding)
        read = 0
        for sequence in reading:
            if read < budget:
                read += self._read(sequence, budget - read, decoding)
        while has_room and self._waiting and read < budget:
            if len(self._running) >= pace.max_num_seqs or (started := self._start()) is None:
                break
            read += self._read(started, budget - read, decoding)
        self.read_tokens += read
        self.step_tokens = read + len(decoding)
        self._stepped = decoding
        return pace.decode_ms(len(decoding)) / 1000 + read / pace.prefill_tokens_per_second

    def end_step(self) -> None:
        """Give each sequence of the step its token; who left meanwhile gets none."""
        stepped, self._stepped = self._stepped, []
        running = self._running
        for sequence in stepped:
            if id(sequence) not in running:
                continue
            if not sequence.produced:
                self.prompt_tokens += sequence.prompt_tokens
            if sequence.output_tokens:
                sequence.produced += 1
                self.made_tokens += 1
            is_last = sequence.produced >= sequence.output_tokens
            if is_last:
                self.remove(sequence)
            sequence.listener(sequence.produced, is_last)

    def _sort_out(self) -> tuple[list[Sequence], list[Sequence], list[Sequence]]:
        """Return who gets a token, who reads, and of the former who has no room for the last one."""
        decoding: list[Sequence] = []
        reading: list[Sequence] = []
        cramped: list[Sequence] = []
        for sequence in self._running.values():
            if sequence.prompt_left:
                reading.append(sequence)
                continue
            decoding.append(sequence)
            if sequence.prompt_tokens + sequence.produced > sequence.held_blocks * BLOCK_TOKENS:
                cramped.append(sequence)
        return decoding, reading, cramped

    def _grow(self, cramped: list[Sequence]) -> bool:
        """Give each a block more; False if some had to stop for it."""
        running = self._running
        before = self.preemptions
        for sequence in cramped:
            while id(sequence) in running:
                if self.cache.take((), 1):
                    sequence.held_blocks += 1
                    break
                self._preempt()
        return self.preemptions == before

    def _preempt(self) -> None:
        number, victim = self._running.popitem()
        self._release(victim)
        self._waiting[number] = victim
        self._waiting.move_to_end(number, last=False)
        self.preemptions += 1

    def _release(self, sequence: Sequence) -> None:
        names = sequence.held_names
        self.cache.release(names, sequence.held_blocks - len(names))
        sequence.held_names = []
        sequence.held_blocks = sequence.named_blocks = 0

    def _start(self) -> Sequence | None:
        """Start the sequence that has waited longest, if the cache has room for what it reads."""
        number, sequence = next(iter(self._waiting.items()))
        tokens = sequence.prompt_tokens + sequence.produced
        # The last token is read in any case: it gives the next one.
        names = sequence.blocks[: (tokens - 1) // BLOCK_TOKENS]
        if not self._pace.has_prefix_cache:
            names = ()
        found = self.cache.count_found(names)
        size = _blocks_of(tokens)
        if not self.cache.take(names[:found], size - found):
            return None
        del self._waiting[number]
        self._running[number] = sequence
        sequence.held_blocks = size
        sequence.held_names = list(names[:found])
        sequence.named_blocks = found
        sequence.prompt_left = tokens - found * BLOCK_TOKENS
        if not sequence.is_known:
            sequence.is_known = True
            sequence.cached_tokens = found * BLOCK_TOKENS
            self.queried_tokens += sequence.prompt_tokens if self._pace.has_prefix_cache else 0
            self.found_tokens += sequence.cached_tokens
        return sequence

    def _read(self, sequence: Sequence, room: int, decoding: list[Sequence]) -> int:
        """Read up to ``room`` tokens; who has read all joins ``decoding``. Returns how many."""
        piece = min(sequence.prompt_left, room)
        sequence.prompt_left -= piece
        if self._pace.has_prefix_cache:
            at = sequence.prompt_tokens + sequence.produced - sequence.prompt_left
            for name in sequence.blocks[sequence.named_blocks : at // BLOCK_TOKENS]:
                sequence.named_blocks += 1
                if self.cache.name_one(name):
                    sequence.held_names.append(name)
        if not sequence.prompt_left:
            decoding.append(sequence)
        return piece


def _blocks_of(tokens: int) -> int:
    return (tokens + BLOCK_TOKENS - 1) // BLOCK_TOKENS
