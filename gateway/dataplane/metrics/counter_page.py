"""The memory in which one worker's counts lie, and which another process reads without a lock.

Made before the worker is forked, it outlives it: the next worker with the same page finds the names
of its series and counts on. The worker counts in a list of its own, which costs half as much a count,
and brings it here with :meth:`CounterPage.publish`; one that is killed takes with it what it has
counted since. Layout: a head of eight integers, :data:`SLOTS` counters of 64 bits, the
names of the series in the order of their slots (lines of JSON: the family, then the label values),
and the latest :meth:`CounterPage.write_state`.
"""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Iterator

import msgspec

from gateway.dataplane.metrics.families import (
    BY_NAME,
    FAMILIES,
    MAX_LABEL_VALUES,
    OTHER,
    Family,
)

SLOTS = 32 * 1024
_HEAD_BYTES = 64
_NAME_BYTES = 2 * 1024 * 1024
_STATE_BYTES = 512 * 1024
_NAMES_USED, _STATE_TURN, _STATE_USED = range(3)  # in the head; the turn is odd during a write
_SPILL = max(family.width for family in FAMILIES)  # slots at the front, for what has no room
_READ_TRIES = 5

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[str]).decode

Labels = tuple[str, ...]


class CounterPage:
    """One worker's counters: written by it alone, read by anybody it was forked beside.

    ``counts`` are the writer's, by slot: it adds to them in place. Pages that nobody has touched cost no memory.
    """

    def __init__(self) -> None:
        names_at = _HEAD_BYTES + 8 * SLOTS
        state_at = names_at + _NAME_BYTES
        whole = memoryview(mmap.mmap(-1, state_at + _STATE_BYTES))
        self._head = whole[:_HEAD_BYTES].cast("q")
        self._values = whole[_HEAD_BYTES:names_at].cast("q")
        self._names = whole[names_at:state_at]
        self._state = whole[state_at:]
        self.counts = [0] * _SPILL
        self._slots: dict[tuple[str, Labels], int] = {}
        self._seen: dict[str, set[str]] = {}

    def adopt(self) -> None:
        """Learn what a worker before us has counted here; the writer calls it first."""
        for family, labels, values in self.series():
            self._remember(family, labels, values)

    def find(self, family: Family, *labels: str) -> int:
        """Return the first slot of a series, which begins now if it is new (for the writer).

        A label value too many becomes :data:`OTHER`.
        """
        found = self._slots.get((family.name, labels))
        if found is not None:
            return found
        labels = tuple(map(self._bounded, family.labels, labels))
        found = self._slots.get((family.name, labels))
        return self._begin(family, labels) if found is None else found

    def publish(self) -> None:
        """Show readers what was counted (for the writer)."""
        self._values[: len(self.counts)] = memoryview(array("q", self.counts))

    def series(self) -> Iterator[tuple[Family, Labels, list[int]]]:
        """Yield each series with the published values of its slots."""
        slot = _SPILL
        for line in bytes(self._names[: self._head[_NAMES_USED]]).splitlines():
            name, *labels = _decode(line)
            family = BY_NAME[name]
            after = slot + family.width
            yield family, tuple(labels), self._values[slot:after].tolist()
            slot = after

    def write_state(self, data: bytes) -> bool:
        """Replace what the page says of this moment; False when it is too much."""
        if len(data) > _STATE_BYTES:
            return False
        head = self._head
        head[_STATE_TURN] |= 1
        self._state[: len(data)] = data
        head[_STATE_USED] = len(data)
        head[_STATE_TURN] += 1
        return True

    def read_state(self) -> bytes | None:
        """Return the latest state; None: there is none, or it is written this very moment."""
        for _ in range(_READ_TRIES):
            turn, used = self._head[_STATE_TURN], self._head[_STATE_USED]
            if turn % 2 == 0 and used:
                data = bytes(self._state[:used])
                if self._head[_STATE_TURN] == turn:
                    return data
        return None

    def clear_state(self) -> None:
        """Forget the state of a worker that has ended (for who forks the next)."""
        self._head[_STATE_USED] = 0
        self._head[_STATE_TURN] = 0

    def _begin(self, family: Family, labels: Labels) -> int:
        line = _encode([family.name, *labels]) + b"\n"
        used, slot = self._head[_NAMES_USED], len(self.counts)
        if used + len(line) > _NAME_BYTES or slot + family.width > SLOTS:
            return 0  # counted where nobody looks; limits on labels keep it from coming to this
        self._names[used : used + len(line)] = line
        self._head[_NAMES_USED] = used + len(line)  # from here on it is there for readers
        self._remember(family, labels, [0] * family.width)
        return slot

    def _remember(self, family: Family, labels: Labels, values: list[int]) -> None:
        self._slots[family.name, labels] = len(self.counts)
        self.counts += values
        for label, value in zip(family.labels, labels, strict=True):
            self._seen.setdefault(label, set()).add(value)

    def _bounded(self, label: str, value: str) -> str:
        seen = self._seen.setdefault(label, set())
        return value if value in seen or len(seen) < MAX_LABEL_VALUES else OTHER
