"""Waiting until an engine has nothing left to do."""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.cli.control_client import ControlClient
from gateway.cli.errors import RefusedError

_POLL_SECONDS = 1.0
# A worker learns of a drain within a second, and what it had chosen before may still be on its way.
_IDLE_POLLS = 2


def wait_until_idle(
    client: ControlClient,
    replica_id: str,
    *,
    timeout_seconds: float,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Return once the replica's engine has said twice in a row that nothing runs or waits there.

    Raises :class:`RefusedError` when that takes longer than ``timeout_seconds``, or when the engine
    answers and does not tell how many requests it has.
    """
    give_up_at = time.monotonic() + timeout_seconds
    idle_polls = 0
    while True:
        pause(_POLL_SECONDS)
        rows = client.get("/engines", replica_id=replica_id)["data"]
        if not rows:
            raise RefusedError(f"The replica {replica_id} is gone.")
        engine = rows[0]
        in_flight = _count(engine)
        if in_flight is None and engine["error"] is None:
            raise RefusedError(
                f"{replica_id} is draining, but its engine does not tell how many requests it has."
            )
        idle_polls = idle_polls + 1 if in_flight == 0 else 0
        if idle_polls >= _IDLE_POLLS:
            return
        if time.monotonic() >= give_up_at:
            what = engine["error"] if in_flight is None else f"{in_flight:g} requests in flight"
            raise RefusedError(
                f"{replica_id} is draining, and not idle after {timeout_seconds:g} s: {what}."
            )


def _count(engine: dict[str, float | None]) -> float | None:
    """Return the requests that run and wait there; None when the engine does not say."""
    running = engine["running"]
    return None if running is None else running + (engine["waiting"] or 0)
