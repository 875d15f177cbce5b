"""The two ways to load an engine: so many clients, or so many requests a second.

Closed loop: a client sends when its last answer has ended. It holds a number of requests under way;
how long a queue would have become, it cannot tell. Open loop: requests are due at times that were
drawn in advance, whatever becomes of those before, and all spans are measured from those times, so
that an engine's pause is seen by all who would have come during it (no coordinated omission).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from backends.sweep.arrivals import poisson_arrivals
from backends.sweep.outcome import Ask
from backends.sweep.under_way import UnderWay

_PAUSE_SECONDS = 0.2  # of a client whose request failed: an engine that refuses is not hammered


class Load(Protocol):
    """One way to load an engine."""

    def hold(self, level: float, spread_seconds: float) -> None:
        """Go over to a level; what is new begins within so many seconds."""

    async def end_step(self) -> None:
        """Put an end to what must not reach into the next step."""

    async def stop(self) -> None:
        """End, and cut off what is under way."""


class ClosedLoop:
    """Clients that each have one request under way; they go on from step to step."""

    def __init__(self, under_way: UnderWay, asks: Iterator[Ask]) -> None:
        self._under_way = under_way
        self._asks = asks
        self._level = 0
        self._clients: dict[int, asyncio.Task[None]] = {}

    def hold(self, level: float, spread_seconds: float) -> None:
        """Have so many clients; new ones begin one after the other, lest they go in step."""
        self._level = round(level)
        missing = [
            number
            for number in range(self._level)
            if number not in self._clients or self._clients[number].done()
        ]
        for place, number in enumerate(missing):
            wait = spread_seconds * place / len(missing)
            self._clients[number] = asyncio.ensure_future(self._be_client(number, wait))

    async def end_step(self) -> None:
        """Let the clients go on: the next step begins with them. Raises what one of them died of."""
        for client in self._clients.values():
            if client.done():
                client.result()

    async def stop(self) -> None:
        """End, and cut off what is under way."""
        self._level = 0
        await _cancel(self._clients.values())

    async def _be_client(self, number: int, wait_seconds: float) -> None:
        await asyncio.sleep(wait_seconds)
        while number < self._level:
            outcome = await self._under_way.send(next(self._asks), self._under_way.clock())
            if outcome.failure is not None:
                await asyncio.sleep(_PAUSE_SECONDS)


class OpenLoop:
    """Requests at times drawn in advance; the levels are requests a second."""

    def __init__(
        self,
        under_way: UnderWay,
        asks: Iterator[Ask],
        *,
        seed: int,
        max_under_way: int,
    ) -> None:
        self._under_way = under_way
        self._asks = asks
        self._seed = seed
        self._max_under_way = max_under_way
        self._offer: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[Any]] = set()
        self._error: BaseException | None = None

    def hold(self, level: float, spread_seconds: float) -> None:
        """Offer so many requests a second, from now on."""
        self._offer = asyncio.ensure_future(self._send_when_due(level))

    async def end_step(self) -> None:
        """Cut off all: a queue must not reach into the next step. Raises what a request died of."""
        await self.stop()
        if self._error is not None:
            raise self._error

    async def stop(self) -> None:
        """End, and cut off what is under way."""
        if self._offer is not None:
            await _cancel([self._offer])
            self._offer = None
        await _cancel(self._requests)

    async def _send_when_due(self, per_second: float) -> None:
        clock: Callable[[], float] = self._under_way.clock
        # Of the seed and the level alone: the same arrivals whatever came of the steps before.
        rng = random.Random(f"{self._seed} {per_second!r}")  # noqa: S311 - no secret
        begins_at = clock()
        for after in poisson_arrivals(per_second, rng):
            due_at = begins_at + after
            # Also when late: all that are due are sent at once, and measured from when they were.
            await asyncio.sleep(max(0.0, due_at - clock()))
            if self._under_way.count >= self._max_under_way:
                self._under_way.give_up(due_at)
                continue
            task: asyncio.Task[Any] = asyncio.ensure_future(
                self._under_way.send(next(self._asks), due_at)
            )
            self._requests.add(task)
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._requests.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._error = task.exception()


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel all and wait for them; what one of them failed of is raised."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    for found in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(found, Exception):
            raise found
