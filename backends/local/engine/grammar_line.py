"""Sequences that wait for their grammar: whose schema is tried next, and who may ask the compiler."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from backends.local.engine.sequence import Sequence

MAX_KNOWN = 1000  # schemas whose result is kept; a forgotten one is tried again, in 3 ms
OLDEST_EACH = 4  # so many trials, of which one is of the schema that has waited longest

StartTrial = Callable[[str], "Future[str | None]"]  # a schema to what is wrong with it


@dataclass(frozen=True)
class Verdict:
    """A sequence at the end of its wait."""

    sequence: Sequence
    problem: str | None  # why its schema cannot be used; None: the grammar is compiled


class GrammarLine:
    """Two waits of a sequence with a schema: for its grammar's trial, and for a quiet compiler.

    A trial is never given up: the compiler has no call for that. So what others wait for is kept short
    by the bound on a schema's cost (:mod:`backends.local.json_schema_subset`) and by the order: the
    schema that is probably compiled soonest goes first, whoever asks, but each fourth trial is of the
    one that has waited longest. Who has ``p`` schemas before it is tried after at most
    ``4 * (p + 1)`` trials, and a cheap one seldom waits for more than two dear ones.

    While a trial compiles, the pipeline must not ask the same compiler for a grammar: it would wait
    for the trial in the middle of a step. Hence who would start with a grammar while a trial runs or is
    due is held back, and a trial is due until those who have started have their first token. The two
    take turns: after each trial, those who were held back start before the next.
    """

    def __init__(self, start_trial: StartTrial) -> None:
        self._start_trial = start_trial
        self._lines: OrderedDict[bytes, dict[int, Sequence]] = OrderedDict()  # by schema's digest
        self._digests: dict[int, bytes] = {}  # of each waiting sequence, by id
        self._trial: tuple[bytes, Future[str | None]] | None = None  # of which schema
        self._trials = 0  # how many have begun
        self._known: OrderedDict[bytes, str | None] = OrderedDict()  # to its problem
        self._held_back: dict[int, Sequence] = {}

    def __len__(self) -> int:
        return len(self._digests)

    @property
    def held_back(self) -> int:
        """How many sequences have a place and wait for the compiler."""
        return len(self._held_back)

    @property
    def is_busy(self) -> bool:
        """Whether a trial runs, or somebody waits for one."""
        return self._trial is not None or bool(self._lines)

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait; its sampling has a schema."""
        digest = hashlib.blake2b((sequence.sampling.json_schema or "").encode()).digest()
        self._lines.setdefault(digest, {})[sequence.sequence_id] = sequence
        self._digests[sequence.sequence_id] = digest

    def remove(self, sequence_id: int) -> None:
        """Take a sequence out; an unknown one is ignored. A trial that it began goes on."""
        self._held_back.pop(sequence_id, None)
        digest = self._digests.pop(sequence_id, None)
        if digest is not None:
            del self._lines[digest][sequence_id]
            if not self._lines[digest]:
                del self._lines[digest]

    def clear(self) -> None:
        """Take everyone out."""
        self._lines.clear()
        self._digests.clear()
        self._held_back.clear()

    def hold_back(self, sequence: Sequence) -> bool:
        """Keep a sequence with a place from asking the compiler, if that must be; tells whether."""
        if self.is_busy:
            self._held_back[sequence.sequence_id] = sequence
        return self.is_busy

    def take_result(self) -> list[Sequence]:
        """Take note of a trial that has ended; returns those held back who are to start now."""
        has_ended = self._trial is not None and self._trial[1].done()
        if self._trial is not None and has_ended:
            digest, future = self._trial
            self._trial = None
            self._known[digest] = future.result()
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
        if self.is_busy and not has_ended:
            return []
        released = list(self._held_back.values())
        self._held_back.clear()
        return released

    def pass_on(self, *, may_try: bool) -> list[Verdict]:
        """Return whose grammar is known; ``may_try``: whether the next trial may begin."""
        verdicts: list[Verdict] = []
        for digest in [digest for digest in self._lines if digest in self._known]:
            self._known.move_to_end(digest)
            for sequence_id, sequence in self._lines.pop(digest).items():
                del self._digests[sequence_id]
                verdicts.append(Verdict(sequence, self._known[digest]))
        is_starting = any(verdict.problem is None for verdict in verdicts)
        if self._lines and self._trial is None and may_try and not is_starting:
            self._begin_trial()
        return verdicts

    def _begin_trial(self) -> None:
        self._trials += 1
        digest = next(iter(self._lines))
        if self._trials % OLDEST_EACH:
            digest = min(self._lines, key=self._cost_ms)
        self._trial = (digest, self._start_trial(self._first(digest).sampling.json_schema or ""))

    def _cost_ms(self, digest: bytes) -> int:
        return self._first(digest).sampling.grammar_cost_ms

    def _first(self, digest: bytes) -> Sequence:
        return next(iter(self._lines[digest].values()))
