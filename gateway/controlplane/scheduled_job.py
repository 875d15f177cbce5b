"""A job that runs again and again in the background until cancelled, whatever it meets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sqlalchemy.exc import SQLAlchemyError


async def run_again_and_again(
    job: Callable[[], Awaitable[object]], *, poll_seconds: float, name: str, log: logging.Logger
) -> None:
    """Run ``job``, ``poll_seconds`` after the end of the last, until cancelled.

    A database that is away is told once, by the kind of error alone (its text may hold the
    address), until the job has succeeded again. ``name``: what waits meanwhile.
    """
    is_failing = False
    task = asyncio.current_task()
    while True:
        try:
            await job()
            is_failing = False
        except SQLAlchemyError as error:
            if not is_failing:
                log.warning("%s: waits for the database: %s", name, type(error).__name__)
            is_failing = True
        except Exception:  # edge of a loop that must outlive anything
            log.exception("%s failed; trying on", name)
        if task is not None and task.cancelling():
            return  # a library has swallowed the cancellation
        await asyncio.sleep(poll_seconds)
