"""Do one blocking thing while the rest goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def run_in_background(
    work: Callable[[], T], pause: Callable[[], None], timeout_seconds: float | None = None
) -> T:
    """Run ``work`` in a thread, calling ``pause`` until it is done; return or raise what it does.

    What ``pause`` raises (a stop was asked for), and :class:`TimeoutError` when the time is up,
    leave the thread to end with the process.
    """
    give_up_at = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        if give_up_at is not None and time.monotonic() > give_up_at:
            raise TimeoutError
        pause()
    if errors:
        raise errors[0]
    return results[0]
