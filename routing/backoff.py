"""How long to wait before the next attempt: full jitter, and never sooner than the engine said."""

from __future__ import annotations

from tenacity import RetryCallState, Retrying, wait_random_exponential

FIRST_SECONDS = 0.05  # the first wait is drawn below this, each one after below twice as much
MAX_SECONDS = 2.0

_WAIT = wait_random_exponential(multiplier=FIRST_SECONDS, max=MAX_SECONDS)
_RETRYING = Retrying(wait=_WAIT)


def backoff_seconds(failures: int, retry_after_seconds: float | None = None) -> float:
    """Return the seconds to wait after the ``failures``-th failure in a row, from 1 on.

    With a Retry-After the jitter comes on top of it, lest all who were told it come at once. No
    wait is needed before another replica is tried that nothing is known against.
    """
    state = RetryCallState(_RETRYING, None, (), {})
    state.attempt_number = failures
    jitter = _WAIT(state)
    return jitter if retry_after_seconds is None else max(retry_after_seconds, 0.0) + jitter
