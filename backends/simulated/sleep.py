"""Cold start, and vLLM's sleep mode: which state the engine is in, and what wakes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

MAX_LEVEL = 2
WEIGHTS = "weights"
PARTS = frozenset({WEIGHTS, "kv_cache"})  # vLLM's tags of /wake_up


class Wakefulness:
    """Whether the engine may work. ``on_change`` is told when it falls asleep and when it is awake."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        start_seconds: float,
        wake_seconds: float,
        on_change: Callable[[bool], None],
    ) -> None:
        self._loop = loop
        self._ready_at = loop.time() + start_seconds
        self._wake_seconds = wake_seconds
        self._on_change = on_change
        self._waking: asyncio.TimerHandle | None = None
        self._asleep: set[str] = set()  # parts
        self._awaited: list[tuple[frozenset[str], Callable[[], None]]] = []
        self.level: int | None = None  # of sleep; None: awake

    @property
    def is_starting(self) -> bool:
        """Whether the model is still being loaded."""
        return self._loop.time() < self._ready_at

    def sleep(self, level: int) -> None:
        """Fall asleep now; who was waiting for it to wake goes on waiting."""
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None
        self.level = level
        self._asleep = set(PARTS)
        self._on_change(False)

    def wake(self, parts: frozenset[str], awake: Callable[[], None]) -> None:
        """Call ``awake`` once ``parts`` are there again; with all of them the engine works.

        The weights take the time, the cache none.
        """
        if not self._asleep & parts:
            awake()
            return
        self._awaited.append((parts, awake))
        if self._waking is None:
            seconds = self._wake_seconds if WEIGHTS in self._asleep & parts else 0.0
            self._waking = self._loop.call_later(seconds, self._woken)

    def stop(self) -> None:
        """Forget what was to come."""
        if self._waking is not None:
            self._waking.cancel()
        self._awaited.clear()

    def _woken(self) -> None:
        self._waking = None
        awaited, self._awaited = self._awaited, []
        for parts, _ in awaited:
            self._asleep -= parts
        if not self._asleep and self.level is not None:
            self.level = None
            self._on_change(True)
        for _, awake in awaited:
            awake()
