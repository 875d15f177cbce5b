"""What compiling a schema's grammar costs, estimated while the schema is read.

The compiler works out, for each state of the grammar, which of the 49,152 tokens may come. It cannot be
interrupted, and whoever wants a grammar meanwhile waits. The factors below are processor time that was
measured with OpenVINO GenAI 2026.4.1; ``tests/integration/test_local_engine_grammars.py`` compares the
estimate with the compiler.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable

MAX_COST_MS = 3_000  # of processor time; the compiler uses two threads, so half of it by the clock
# A place of a string of bounded length is a state in which nearly every token may come. Beyond some
# length the compiler repeats states. Equal bounds are compiled once.
_STRING_PLACE_MS = 28.0
_MAX_STRING_PLACES = 256
_MAX_PLACES_OF_MIN = 64
# Any of an object's optional properties may follow any before it: 100 take 0.2 s, 245 take 1.3 s.
_OPTIONAL_PAIR_MS = 0.025
# Places of arrays of bounded length, over the whole schema: 20 such arrays take 2 s, 120 take 54 s.
_ITEM_PLACES_SQUARED_MS = 9e-5
_MAX_ITEM_PLACES = 256
_TEXT_BYTE_MS = 0.03  # of names and of the values of enum and const
# Beside required properties, the values of an optional one stand in the grammar once for each of the
# object's others: 90 such properties with 200 bytes each take 7 s.
_REPEATED_BYTE_MS = 4e-3
_NODE_MS = 0.5
# What values that may stand in the same place have alike at their beginnings, or ends, is merged, a byte of
# all of them at a time, and for each the whole of them is gone through: two that share 2,000 bytes take
# 10 s, 140 that share 100 take 2 s, two that share 200 beside one of 15,000 take 9 s.
_MERGED_BYTE_MS = 3.1e-3


class GrammarCost:
    """The estimate for the part of a schema that has been read."""

    def __init__(self) -> None:
        self._string_bounds: set[tuple[int, int | None]] = set()
        self._string_places = 0
        self._item_places = 0
        self._other_ms = 0.0

    @property
    def milliseconds(self) -> int:
        """Processor time that compiling probably takes."""
        items = self._item_places**2 * _ITEM_PLACES_SQUARED_MS
        return round(self._string_places * _STRING_PLACE_MS + items + self._other_ms)

    def add_node(self) -> None:
        """Count one schema within the schema."""
        self._other_ms += _NODE_MS

    def add_name(self, name: str) -> None:
        """Count a property's name."""
        self._other_ms += len(name.encode("utf-8", "replace")) * _TEXT_BYTE_MS

    def add_string(self, shortest: int, longest: int | None) -> None:
        """Count the bounds of a string, in characters; None: no upper one."""
        bounds = (shortest, longest)
        if bounds in self._string_bounds:
            return
        self._string_bounds.add(bounds)
        if longest is None:
            self._string_places += min(shortest, _MAX_PLACES_OF_MIN)
        else:
            self._string_places += min(longest, _MAX_STRING_PLACES)

    def add_array(self, fewest: int, most: int | None) -> None:
        """Count the bounds of an array, in items; None: no upper one."""
        self._item_places += min(most or fewest, _MAX_ITEM_PLACES)

    def add_optional_properties(self, names: Collection[str], values: Iterable[str]) -> None:
        """Count the optional properties of one object.

        ``values``: in JSON, those of their enums, if the object has properties that are not optional.
        """
        size = sum(len(value.encode("utf-8", "replace")) for value in values)
        self._other_ms += (
            len(names) ** 2 * _OPTIONAL_PAIR_MS + len(names) * size * _REPEATED_BYTE_MS
        )
        self._other_ms += _merging_ms([name.encode("utf-8", "replace") for name in names])

    def add_values(self, texts: Iterable[str]) -> None:
        """Count values in JSON, any of which may come in the same place."""
        data = [text.encode("utf-8", "replace") for text in texts]
        self._other_ms += sum(map(len, data)) * _TEXT_BYTE_MS
        self._other_ms += max(_merging_ms(data), _merging_ms([value[::-1] for value in data]))


def _merging_ms(texts: list[bytes]) -> float:
    """Return what merging the beginnings of ``texts`` costs."""
    shared = [_shared_length(*pair) for pair in itertools.pairwise(sorted(texts))]
    size = sum(map(len, texts)) - sum(shared) / 2  # it shrinks meanwhile
    return max(shared, default=0) * size * _MERGED_BYTE_MS


def _shared_length(one: bytes, other: bytes) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
