"""Do one blocking thing while the rest goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def run_in_background(work: Callable[[], T], pause: Callable[[], None]) -> T:
    """Run ``work`` in a thread, calling ``pause`` until it is done; return or raise what it does.

    What ``pause`` raises (a stop was asked for) leaves the thread to end with the process.
    """
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
        pause()
    if errors:
        raise errors[0]
    return results[0]
