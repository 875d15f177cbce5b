"""Whose long prompt is being read, and when its next piece may be."""

from __future__ import annotations

from collections import deque

from backends.local.engine.sequence import Sequence

PIECE_TOKENS = 128  # of a long prompt, how many are read before others have their turn
# Steps between two pieces while others generate: a piece takes as long as some twenty of their tokens.
STEPS_BETWEEN = 8


class ReadingLine:
    """Sequences that have a place and a prompt too long to be read at once.

    One prompt is read at a time. Then it is another request's turn, so that a request of many long
    prompts holds up no other for longer than one of them takes.
    """

    def __init__(self, piece_tokens: int, steps_between: int) -> None:
        self._piece_tokens = piece_tokens
        self._steps_between = steps_between
        self._steps_owed = 0  # to those who generate, before the next piece is read
        self._line: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._line

    def has_more_to_read(self, sequence: Sequence) -> bool:
        """Whether what is left of the prompt is too long to be read at once."""
        return len(sequence.prompt) - sequence.read_tokens > self._piece_tokens

    def add(self, sequence: Sequence) -> None:
        """Put a sequence at the end."""
        self._line.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, if it is there."""
        if sequence in self._line:
            self._line.remove(sequence)

    def note_step(self) -> None:
        """Say that a step has been made."""
        self._steps_owed -= 1

    def note_piece(self) -> None:
        """Say that a piece has been read."""
        self._steps_owed = self._steps_between

    def find_next(self, running: int) -> Sequence | None:
        """Return whose next piece is to be read now, if anyone's; ``running``: who has a place."""
        if not self._line or self._line[0].generating is not None:
            return None
        is_turn = self._steps_owed <= 0 or running == len(self._line)
        return self._line[0] if is_turn else None

    def next_piece(self, sequence: Sequence) -> list[int]:
        """Return the prompt up to the end of its next piece, and count the piece as read."""
        sequence.read_tokens += self._piece_tokens
        return sequence.prompt[: sequence.read_tokens]

    def take_out_first(self) -> None:
        """Let the first go, whose rest can be read at once; then it is another request's turn."""
        request_id = self._line.popleft().request_id
        if self._line and self._line[0].request_id == request_id:
            others = [s for s in self._line if s.request_id != request_id]
            same = [s for s in self._line if s.request_id == request_id]
            self._line = deque(others + same)
