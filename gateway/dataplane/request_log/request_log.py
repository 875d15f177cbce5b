"""Takes what is settled, and writes it later: the request path only appends to a list.

Lines are made on the event loop, a few at a time, and written by a thread, so a disk that hangs holds
up nothing but the log. What does not fit meanwhile is dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from gateway.dataplane.request_log.line import EndedAttempt, EndedRequest, RefusedRequest, line_of
from gateway.dataplane.request_log.log_file import LogFile

if TYPE_CHECKING:
    from billing.usage.event import RequestIdentity, RequestStatus, TokenUsage
    from routing.decision import Decision
    from routing.outcome import Outcome

WRITE_SECONDS = 0.5  # between two writes: what a kill -9 of a worker can lose
MAX_WAITING = 10_000  # requests; some 20 MB with their decisions
_SLICE = 16  # lines made at a time: under a millisecond, with eight replicas to choose from
_COMPLAIN_SECONDS = 60.0
_END_SECONDS = 2.0  # a disk that hangs must not keep a worker from its end

_LOG = logging.getLogger(__name__)


class Settled(Protocol):
    """What is kept of a request that has ended."""

    identity: RequestIdentity
    status: RequestStatus
    http_status: int
    usage: TokenUsage
    first_token_at_us: int | None
    error_code: str | None
    attempts: int
    attempt_at: float
    ended_attempts: list[EndedAttempt] | None  # set here
    decision: Decision | None

    @property
    def route(self) -> _Route:
        """That served it."""

    @property
    def replica(self) -> _Replica | None:
        """That served it, or was asked last."""


class _Route(Protocol):
    @property
    def deployment(self) -> str:
        """Its deployment's name."""


class _Replica(Protocol):
    @property
    def id(self) -> str:
        """Its id."""


def make_request_log(target: str | None, loop: asyncio.AbstractEventLoop) -> RequestLog | None:
    """Return a worker's log; None where nobody wants one. Raises as :class:`RequestLog`."""
    return None if target is None else RequestLog(target, loop)


class RequestLog:
    """The request log of one worker."""

    def __init__(self, target: str, loop: asyncio.AbstractEventLoop) -> None:
        """``target``: a path, or ``stdout``. Raises :class:`OSError` where it cannot be opened."""
        self._file = LogFile(target)
        self._waiting: deque[EndedRequest | RefusedRequest] = deque()
        self._lines: list[bytes] = []  # made and not yet with the thread
        self._dropped = 0
        self._complain_at = 0.0
        self._is_stuck = False
        self._task = loop.create_task(self._keep_writing())

    def attempt_ended(
        self, request: Settled, replica_id: str, outcome: Outcome, now: float
    ) -> None:
        """An attempt of a request ended, at the loop time ``now``."""
        if request.ended_attempts is None:
            request.ended_attempts = []
        seconds = now - request.attempt_at
        request.ended_attempts.append(EndedAttempt(replica_id, outcome, seconds))

    def settled(self, request: Settled) -> None:
        """A request was settled; nothing of it is read again but what is kept here."""
        if len(self._waiting) >= MAX_WAITING:
            self._dropped += 1
            return
        self._waiting.append(
            EndedRequest(
                identity=request.identity,
                deployment=request.route.deployment,
                replica_id=None if request.replica is None else request.replica.id,
                decision=request.decision,
                attempts=request.attempts,
                # The latest may end only now: it is not among them yet, and not told of.
                earlier_attempts=tuple(request.ended_attempts or ())[
                    : max(request.attempts - 1, 0)
                ],
                status=request.status,
                http_status=request.http_status,
                usage=request.usage,
                first_token_at_us=request.first_token_at_us,
                finished_at_us=time.time_ns() // 1000,
                error_code=request.error_code,
            )
        )

    def refused(self, request: RefusedRequest) -> None:
        """A request was refused before admission."""
        if len(self._waiting) >= MAX_WAITING:
            self._dropped += 1
            return
        self._waiting.append(request)

    async def stop(self) -> None:
        """Wait for what is being written; what is settled from now on, :meth:`close` writes."""
        self._task.cancel()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._task
        except TimeoutError:
            self._is_stuck = True
        except asyncio.CancelledError:
            pass

    def close(self) -> None:
        """Write what waits still, and end; nothing where a write has hung till now."""
        self._task.cancel()
        if self._is_stuck:
            return
        self._make_lines(len(self._waiting))
        lines = self._take_lines()
        self._note_lost(lines, _try_write(self._file, lines))
        self._file.close()

    async def _keep_writing(self) -> None:
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            while self._waiting:
                self._make_lines(_SLICE)
                await asyncio.sleep(0)  # requests first
            lines = self._take_lines()
            if not lines:
                continue
            writing = asyncio.ensure_future(asyncio.to_thread(_try_write, self._file, lines))
            try:
                await asyncio.shield(writing)
            finally:  # what follows must not overtake it
                self._note_lost(lines, await writing)

    def _make_lines(self, count: int) -> None:
        waiting = self._waiting
        self._lines += [line_of(waiting.popleft()) for _ in range(min(count, len(waiting)))]

    def _take_lines(self) -> list[bytes]:
        lines, self._lines = self._lines, []
        return lines

    def _note_lost(self, lines: list[bytes], problem: OSError | None) -> None:
        """Say what was lost, now and then: requests are served whatever becomes of their lines."""
        if problem is not None:
            self._dropped += len(lines)
        now = time.monotonic()
        if self._dropped and now >= self._complain_at:
            self._complain_at = now + _COMPLAIN_SECONDS
            dropped, self._dropped = self._dropped, 0
            why = "too many wait" if problem is None else problem.strerror
            _LOG.error("the request log has lost %d lines: %s", dropped, why)


def _try_write(file: LogFile, lines: list[bytes]) -> OSError | None:
    """Write; return what stood against it."""
    try:
        file.write(lines)
    except OSError as error:
        return error
    return None
