"""How long a process that dies again and again is left alone. Pure."""

from __future__ import annotations

from tenacity import RetryCallState, Retrying, wait_random_exponential


def get_restart_wait(failures: int, *, first_seconds: float, most_seconds: float) -> float:
    """Return the seconds before the next start after so many failures in a row (1 or more).

    Full jitter: hosts that failed together do not load their model from one store together. The
    first restart is at once: most deaths are not followed by another.
    """
    if failures <= 1:
        return 0.0
    state = RetryCallState(Retrying(), None, (), {})
    state.attempt_number = failures - 1
    return wait_random_exponential(multiplier=first_seconds, max=most_seconds)(state)
