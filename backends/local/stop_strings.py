"""Looks for stop strings in text that comes in pieces, and keeps back what may become one."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Finds the stop string that is complete first, however the text is cut into pieces.

    Where two are complete at the same character, the longer one counts.
    """

    def __init__(self, stop_strings: Sequence[str], *, is_kept: bool = False) -> None:
        """``is_kept``: the stop string found stays in the text."""
        self._stop_strings = tuple(stop_strings)
        self._is_kept = is_kept
        self._held = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """Return the text that may be shown now, and the stop string found, if any.

        After a match the matcher is spent: what follows the stop string is dropped.
        """
        if not self._stop_strings:
            return text, None
        text = self._held + text
        found = self._find_first(text)
        if found is not None:
            start, stop = found
            self._held = ""
            return text[: start + len(stop)] if self._is_kept else text[:start], stop
        shown = len(text) - self._held_length(text)
        self._held = text[shown:]
        return text[:shown], None

    def flush(self) -> str:
        """Return what was kept back, at the end of a sequence that no stop string ended."""
        held, self._held = self._held, ""
        return held

    def _find_first(self, text: str) -> tuple[int, str] | None:
        matches = [
            (start + len(stop), start, stop)
            for stop in self._stop_strings
            if (start := text.find(stop)) >= 0
        ]
        if not matches:
            return None
        _, start, stop = min(matches)
        return start, stop

    def _held_length(self, text: str) -> int:
        """Return the length of the longest end of ``text`` that begins a stop string."""
        longest = max(len(stop) for stop in self._stop_strings) - 1
        for length in range(min(longest, len(text)), 0, -1):
            end = text[-length:]
            if any(stop.startswith(end) for stop in self._stop_strings):
                return length
        return 0
