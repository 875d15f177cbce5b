"""Reports that are seconds of arithmetic: beside the event loop, one at a time, few waiting.

The arithmetic holds the interpreter while it runs. One such thread makes the event loop wait for
milliseconds at a time; several would starve it, and with it sign-ins, alarms and the publication of
Snapshots. So who comes while one runs waits for its turn, not for long, and is told when to come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import BoundedSemaphore
from typing import TypeVar

from gateway.controlplane.errors import BusyError

T = TypeVar("T")
_MOST_WAITING = 4
_LONGEST_WAIT_SECONDS = 20.0
_RETRY_AFTER_SECONDS = 5


class ReportTurns:
    """Computes reports, one at a time."""

    def __init__(
        self,
        *,
        most_waiting: int = _MOST_WAITING,
        longest_wait_seconds: float = _LONGEST_WAIT_SECONDS,
    ) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="report")
        self._places = BoundedSemaphore(1 + most_waiting)
        self._longest_wait_seconds = longest_wait_seconds

    def close(self) -> None:
        """Begin no further report; one that runs ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def compute(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, and raise what it raises, once it has its turn.

        Work whose caller was cancelled while it waited is never begun. Raises :class:`BusyError` when
        too many wait already, or when the turn does not come in time.
        """
        if not self._places.acquire(blocking=False):
            raise _busy()
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def run() -> T:
            with suppress(RuntimeError):  # the loop is gone; so is who waited
                loop.call_soon_threadsafe(begun.set)
            return work()

        job = self._pool.submit(run)
        # The place is free when the work has ended, however long its caller has been gone.
        job.add_done_callback(self._leave)
        try:
            async with asyncio.timeout(self._longest_wait_seconds):
                await begun.wait()
        except TimeoutError:
            if job.cancel():
                raise _busy() from None
        except asyncio.CancelledError:
            job.cancel()
            raise
        return await asyncio.wrap_future(job)

    def _leave(self, _: Future[T]) -> None:
        self._places.release()


def _busy() -> BusyError:
    return BusyError(
        "Other reports are being computed; ask again shortly.",
        retry_after_seconds=_RETRY_AFTER_SECONDS,
    )
