"""Asks an engine for its health, and tells one that is frozen from one that is slow to answer.

An engine under load may take seconds for what it else does at once, and a connection may be lost
without a word. So nobody is judged by one question: it is asked again on other connections, the
earlier questions stay open meanwhile, and any answer to any of them counts, as does any byte that a
request gets. Only who gives nothing at all for the whole time is silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from backends.errors import (
    BackendError,
    BackendTimeoutError,
    ConnectError,
    ConnectTimeoutError,
)
from backends.http_pool import Endpoint
from backends.vllm.ask import ask
from routing.replica_state import Health, read_health

QUESTIONS = 3  # that are open at most
_LOOKS = 13  # at what requests have got, in the time that an engine may be quiet
_LIMIT_BYTES = 64 * 1024
_GIVE_UP_SECONDS = 3600.0  # whoever listens gives up far sooner


@dataclass(frozen=True, slots=True)
class Listening:
    """How long to listen, in seconds."""

    quiet_seconds: float  # without anything: then it is silent
    busy_seconds: float  # for its health, while requests do get something of it
    quiet_before_seconds: float = (
        0.0  # it was asked something else and has said nothing for so long
    )


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of it."""

    health: Health
    seconds: float  # that it took
    has_traffic: bool  # requests got something of it meanwhile


class _Questions:
    """The questions that are open; :attr:`answered` is what the first answer says."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._tasks: list[asyncio.Task[None]] = []
        self.answered: asyncio.Future[Health] = asyncio.get_running_loop().create_future()

    def __len__(self) -> int:
        return len(self._tasks)

    def ask(self) -> None:
        """Open one more, on a connection of its own."""
        self._tasks.append(asyncio.create_task(self._ask()))

    async def close(self) -> None:
        """Give up those that are open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.answered.done() and not self.answered.cancelled():
            self.answered.exception()  # of one that nobody has waited for any more

    async def _ask(self) -> None:
        try:
            health = await _ask_once(self._endpoint)
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            if not self.answered.done():
                self.answered.set_exception(error)
            return
        if health is not Health.SILENT and not self.answered.done():
            self.answered.set_result(health)


async def ask_health(
    endpoint: Endpoint,
    listening: Listening,
    *,
    last_received_at: Callable[[], float],
    on_doubt: Callable[[], None],
) -> Heard:
    """Return what came of ``GET /health``.

    ``last_received_at``: when requests got something of the engine, by the event loop's clock.
    ``on_doubt`` is called when it has not answered for a while.
    """
    loop = asyncio.get_running_loop()
    begun_at = heard_at = looked_at = loop.time()
    look_seconds = listening.quiet_seconds / _LOOKS
    quiet, has_traffic = listening.quiet_before_seconds, False
    questions = _Questions(endpoint)
    questions.ask()
    try:
        while True:
            left = max(listening.quiet_seconds - quiet, 0.0)
            await asyncio.wait([questions.answered], timeout=min(left, look_seconds))
            now = loop.time()
            if questions.answered.done():
                return Heard(questions.answered.result(), now - begun_at, has_traffic)
            # What we slept through ourselves is not the engine's: its answer may be there already.
            quiet += min(now - looked_at, 2 * look_seconds)
            looked_at = now
            received_at = last_received_at()
            if received_at > heard_at:
                heard_at, has_traffic = received_at, True
                quiet = min(quiet, now - received_at)
                if now - begun_at >= listening.busy_seconds:
                    return Heard(Health.SILENT, now - begun_at, has_traffic=True)
            if quiet >= listening.quiet_seconds:
                return Heard(Health.SILENT, now - begun_at, has_traffic=False)
            asked = len(questions)
            waited = listening.quiet_before_seconds + now - begun_at
            if asked < QUESTIONS and waited >= asked * listening.quiet_seconds / QUESTIONS:
                questions.ask()
                if asked == 1:
                    on_doubt()
    finally:
        await questions.close()


async def _ask_once(endpoint: Endpoint) -> Health:
    try:
        answered = await ask(
            endpoint, "GET", "/health", timeout_seconds=_GIVE_UP_SECONDS, limit_bytes=_LIMIT_BYTES
        )
    except (BackendTimeoutError, ConnectTimeoutError):
        return Health.SILENT
    except ConnectError:
        return Health.REFUSED
    except BackendError:
        return Health.ERROR
    return read_health(answered.status)
