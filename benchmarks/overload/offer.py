"""Clients in an open loop, which honour Retry-After and count what they got."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from benchmarks.overload.dispatcher import count_output
from benchmarks.overload.plan import (
    MAX_OUTPUT_TOKENS,
    PATIENCE_SECONDS,
    PROMPT_BYTES,
    SLO_FIRST_SECONDS,
    SLO_SECONDS,
    Sender,
    Target,
)
from benchmarks.overload.post import Poster

_PATH = "/v1/chat/completions"
_CONTENT = re.compile(rb'"content": ?"[^"]')  # the first piece may have the role alone


@dataclass(slots=True)
class Tally:
    """What one sender's clients got in the measured time."""

    arrived: int = 0
    good: int = 0  # served within the SLO
    good_streams: int = 0  # of these
    good_tokens: int = 0
    late: int = 0  # served, but too late
    late_first: int = 0  # of these, streams that had their first content too late
    served_tokens: int = 0
    refused: int = 0  # attempts
    refused_without_retry_after: int = 0
    left: int = 0  # hung up on a server that was silent for too long
    gave_up: int = 0  # refused until their patience ended
    failed: int = 0  # anything else
    seconds: list[float] = field(default_factory=list)  # of the served, first byte to last
    first_seconds: list[float] = field(default_factory=list)  # of the streams, to first content


class OpenLoop:
    """Loads a target from some senders at once."""

    def __init__(self, target: Target, senders: Sequence[Sender], *, seed: int = 1) -> None:
        self._senders = senders
        self._poster = Poster(target.url)
        self._random = random.Random(seed)
        self._numbers = iter(range(1 << 62))
        self._is_measuring = False
        self._clients: set[asyncio.Task[None]] = set()
        self.tallies = {sender.name: Tally() for sender in senders}

    async def run(self, warm_up_seconds: float, measured_seconds: float) -> dict[str, Tally]:
        """Send for so long; those still under way at the end are cut off."""
        offers = [asyncio.create_task(self._offer(sender)) for sender in self._senders]
        try:
            await asyncio.sleep(warm_up_seconds)
            self._is_measuring = True
            await asyncio.sleep(measured_seconds)
            self._is_measuring = False
        finally:
            running = [*offers, *self._clients]
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            self._poster.close()
        return self.tallies

    async def saturate(
        self, sender: Sender, clients: int, warm_up_seconds: float, measured_seconds: float
    ) -> Tally:
        """Keep ``clients`` requests under way, in a closed loop."""

        async def loop() -> None:
            while True:
                await self._be_client(sender)

        for _ in range(clients):
            self._start(loop())
        self._senders = ()
        await self.run(warm_up_seconds, measured_seconds)
        return self.tallies[sender.name]

    async def _offer(self, sender: Sender) -> None:
        now = asyncio.get_running_loop().time
        due_at = now()
        while True:  # at the times that were drawn, also when this process was late
            due_at += self._random.expovariate(sender.per_second)
            await asyncio.sleep(max(0.0, due_at - now()))
            self._start(self._be_client(sender))

    def _start(self, client: object) -> None:
        task = asyncio.ensure_future(client)  # type: ignore[call-overload]
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _be_client(self, sender: Sender) -> None:
        now = asyncio.get_running_loop().time
        tally = self.tallies[sender.name]
        give_up_at = now() + PATIENCE_SECONDS
        number = next(self._numbers)
        body = _body(sender.model, number, is_stream=number % 2 == 1)
        tally.arrived += self._is_measuring
        while True:
            retry_after = await self._try(sender, tally, body)
            if retry_after is None:
                return
            if now() + retry_after > give_up_at:
                tally.gave_up += self._is_measuring
                return
            await asyncio.sleep(retry_after)

    async def _try(self, sender: Sender, tally: Tally, body: bytes) -> float | None:
        """Ask once; return after how long to ask again."""
        now = asyncio.get_running_loop().time
        asked_at = now()
        headers = {"authorization": f"Bearer {sender.secret}"}
        first_at: float | None = None

        def note_first(piece: bytes) -> None:
            nonlocal first_at
            if first_at is None and _CONTENT.search(piece):
                first_at = now()

        try:
            async with asyncio.timeout(sender.timeout_seconds):
                reply = await self._poster.post(_PATH, body, headers, note_first)
        except TimeoutError:
            tally.left += self._is_measuring
            return None
        except (OSError, EOFError):
            tally.failed += self._is_measuring
            return None
        if reply.status in {429, 503}:
            tally.refused += self._is_measuring
            milliseconds = reply.headers.get("retry-after-ms")
            if milliseconds is None:
                tally.refused_without_retry_after += self._is_measuring
                return 1.0
            return float(milliseconds) / 1000
        if not self._is_measuring:
            return None
        if reply.status != 200:
            tally.failed += 1
            return None
        seconds, tokens = now() - asked_at, count_output(reply.body)
        tally.seconds.append(seconds)
        tally.served_tokens += tokens
        is_first_late = False
        if first_at is not None:
            tally.first_seconds.append(first_at - asked_at)
            is_first_late = first_at - asked_at > SLO_FIRST_SECONDS
        if seconds <= SLO_SECONDS and not is_first_late:
            tally.good += 1
            tally.good_streams += first_at is not None
            tally.good_tokens += tokens
        else:
            tally.late += 1
            tally.late_first += is_first_late
        return None


def _body(model: str, number: int, *, is_stream: bool) -> bytes:
    """Return a chat, every other one to be streamed."""
    stream = {"stream": True, "stream_options": {"include_usage": True}} if is_stream else {}
    text = f"{number} ".ljust(PROMPT_BYTES, "x")
    return msgspec.json.encode(
        {
            "model": model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": MAX_OUTPUT_TOKENS,
            **stream,
        }
    )
