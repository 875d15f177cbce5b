"""Sequences that wait for their grammar: who may pass, whose schema is tried next."""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from backends.local.engine.sequence import Sequence

MAX_KNOWN = 1000  # schemas whose result is kept; a forgotten one is tried again, in 3 ms

StartTrial = Callable[[str], "Future[str | None]"]  # a schema to what is wrong with it


@dataclass(frozen=True)
class Verdict:
    """A sequence at the end of its wait."""

    sequence: Sequence
    problem: str | None  # why its schema cannot be used; None: the grammar is compiled


class GrammarLine:
    """Lets sequences through in arrival order, each once its schema has been tried.

    While a trial compiles, the pipeline must not ask the same compiler for a grammar: it would wait
    for the trial in the middle of a step. Hence nobody passes during a trial, and no trial begins
    while a sequence that has passed is still to start.
    """

    def __init__(self, start_trial: StartTrial) -> None:
        self._start_trial = start_trial
        self._line: deque[Sequence] = deque()
        self._trial: tuple[bytes, Future[str | None]] | None = None  # of which schema
        self._known: OrderedDict[bytes, str | None] = (
            OrderedDict()
        )  # a schema's digest to its problem

    def __len__(self) -> int:
        return len(self._line)

    def add(self, sequence: Sequence) -> None:
        """Put a sequence at the end of the line; its sampling has a schema."""
        self._line.append(sequence)

    def remove(self, sequence_id: int) -> None:
        """Take a sequence out; an unknown one is ignored. A trial that it began goes on."""
        self._line = deque(s for s in self._line if s.sequence_id != sequence_id)

    def clear(self) -> None:
        """Take everyone out."""
        self._line.clear()

    def pass_on(self, *, may_try: bool) -> list[Verdict]:
        """Return who has reached the end of the wait; ``may_try``: whether a trial may begin."""
        if self._trial is not None and not self._trial[1].done():
            return []
        self._take_result()
        verdicts: list[Verdict] = []
        while self._line:
            schema = self._line[0].sampling.json_schema or ""
            digest = hashlib.blake2b(schema.encode()).digest()
            if digest not in self._known:
                if may_try and not any(verdict.problem is None for verdict in verdicts):
                    self._trial = (digest, self._start_trial(schema))
                break
            self._known.move_to_end(digest)
            verdicts.append(Verdict(self._line.popleft(), self._known[digest]))
        return verdicts

    def _take_result(self) -> None:
        if self._trial is None:
            return
        digest, future = self._trial
        self._trial = None
        self._known[digest] = future.result()
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
