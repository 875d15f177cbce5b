"""How often somebody may fail before having to wait: in memory, bounded, per process."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable


class FailureLimit:
    """Allows ``failures`` in any ``window_seconds`` for each subject.

    An attempt counts when it begins, so that many at once do not slip through; one that succeeds
    is forgotten with all before it. Of the subjects beyond ``max_subjects`` the longest quiet one
    is forgotten, so that made-up subjects cannot fill the memory.
    """

    def __init__(
        self,
        *,
        failures: int,
        window_seconds: float,
        clock: Callable[[], float],
        max_subjects: int = 10_000,
    ) -> None:
        self._failures = failures
        self._window_seconds = window_seconds
        self._clock = clock
        self._max_subjects = max_subjects
        self._attempts: OrderedDict[Hashable, deque[float]] = OrderedDict()

    def begin(self, subject: Hashable) -> int:
        """Count an attempt; return 0 if it may go on, else the whole seconds to wait."""
        now = self._clock()
        attempts = self._attempts.setdefault(subject, deque())
        self._attempts.move_to_end(subject)
        while attempts and attempts[0] <= now - self._window_seconds:
            attempts.popleft()
        if len(attempts) >= self._failures:
            return max(1, math.ceil(attempts[0] + self._window_seconds - now))
        attempts.append(now)
        while len(self._attempts) > self._max_subjects:
            self._attempts.popitem(last=False)
        return 0

    def succeed(self, subject: Hashable) -> None:
        """Forget the subject's attempts."""
        self._attempts.pop(subject, None)
