"""What a prober writes of a replica, and what it reads of the requests there."""

from __future__ import annotations

from typing import Protocol

from routing.circuit_breaker import CircuitBreaker
from routing.types import ReplicaState


class ProbedView(Protocol):
    """What a prober writes of a replica."""

    state: ReplicaState
    engine_running: int | None
    engine_waiting: int | None
    kv_usage: float | None
    kv_capacity_tokens: int | None
    loaded_adapters: frozenset[str] | None
    probed_at: float | None  # the event loop's clock
    in_flight: int
    waiting_requests: int  # of them, those without a first token
    waiting_since: float  # that there are such; the event loop's clock
    waiting_input_tokens: int  # theirs
    ttft: float | None  # seconds, averaged
    seconds_a_token: float | None  # of a prompt, until the first token; averaged
    breaker: CircuitBreaker

    @property
    def is_draining(self) -> bool:
        """Whether the Snapshot says that it drains."""


class Lines(Protocol):
    """The connections that requests have to a replica."""

    last_received_at: float  # anything, on any of them; the event loop's clock
