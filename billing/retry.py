"""Trying a database transaction again when PostgreSQL says that it collided with another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import psycopg
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

Result = TypeVar("Result")

# 40P01 and 40001: the server undid our transaction and asks us to try again.
CONFLICTS = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)

_ATTEMPTS = 20
_FIRST_WAIT_SECONDS = 0.01
_MAX_WAIT_SECONDS = 1.0


def retry_conflicts(transact: Callable[[], Result]) -> Result:
    """Run ``transact``, a whole transaction, until it does not collide; waits are jittered.

    Other errors pass, and so does the conflict itself after 20 attempts.
    """
    retrying = Retrying(
        retry=retry_if_exception_type(CONFLICTS),
        wait=wait_random_exponential(multiplier=_FIRST_WAIT_SECONDS, max=_MAX_WAIT_SECONDS),
        stop=stop_after_attempt(_ATTEMPTS),
        reraise=True,
    )
    return retrying(transact)
