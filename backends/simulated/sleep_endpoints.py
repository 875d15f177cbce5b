"""vLLM's development paths around sleep mode."""

from __future__ import annotations

import asyncio

import msgspec

from backends.local.errors import ApiError
from backends.simulated.answer import Answer
from backends.simulated.exchange import Abortable, Client, Request, error_reply
from backends.simulated.sleep import MAX_LEVEL, PARTS, Wakefulness

_LOOK_AGAIN_SECONDS = 0.01
_encode = msgspec.json.Encoder().encode


class FallingAsleep:
    """``/sleep``, which with ``mode=wait`` is answered when what runs has ended."""

    def __init__(self, endpoints: SleepEndpoints, client: Client, level: int) -> None:
        self._endpoints = endpoints
        self._client = client
        self._level = level
        self._timer: asyncio.TimerHandle | None = None

    def fall(self, *, is_waiting: bool) -> None:
        """Fall asleep, or look again in a moment."""
        endpoints = self._endpoints
        if is_waiting and endpoints.answers:
            self._timer = endpoints.loop.call_later(
                _LOOK_AGAIN_SECONDS, lambda: self.fall(is_waiting=True)
            )
            return
        endpoints.wakefulness.sleep(self._level)
        self._client.respond(200, _encode({"status": "sleeping", "level": self._level}))

    def abort(self) -> None:
        """Stay awake."""
        if self._timer is not None:
            self._timer.cancel()


class SleepEndpoints:
    """What the paths answer. ``answers``: those on their way, which change all the time."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, wakefulness: Wakefulness, answers: set[Answer]
    ) -> None:
        self.loop = loop
        self.wakefulness = wakefulness
        self.answers = answers

    def is_sleeping(self, client: Client, _request: Request) -> None:
        """Answer ``/is_sleeping``."""
        client.respond(200, _encode({"is_sleeping": self.wakefulness.level is not None}))

    def sleep(self, client: Client, request: Request) -> Abortable | None:
        """Answer ``/sleep``; what runs is ended, waited for, or kept for later."""
        text, mode = request.find_option("level") or "1", request.find_option("mode") or "abort"
        if not text.isdecimal() or not 1 <= int(text) <= MAX_LEVEL:
            error_reply(client, ApiError(400, "level must be 1 or 2", param="level"))
            return None
        if mode not in {"abort", "wait", "keep"}:
            error_reply(client, ApiError(400, "mode must be abort, wait or keep", param="mode"))
            return None
        falling = FallingAsleep(self, client, int(text))
        if mode == "abort":
            for answer in list(self.answers):
                answer.end_early()
        falling.fall(is_waiting=mode == "wait")
        return falling

    def wake_up(self, client: Client, request: Request) -> None:
        """Answer ``/wake_up`` once what its tags name, or all of it, is awake."""
        tags = request.options("tags") or None
        reply = _encode({"status": "awake", "tags": tags})
        parts = PARTS if tags is None else PARTS & frozenset(tags)
        self.wakefulness.wake(parts, lambda: client.respond(200, reply))

    def call_workers(self, client: Client, _request: Request) -> None:
        """Answer ``/collective_rpc``: there is nothing to reload."""
        client.respond(200, _encode({"results": [None]}))
