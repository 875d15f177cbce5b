"""What routing needs to know of a deployment's policies, whoever keeps them.

The Snapshot's ``PickPolicy`` and ``BreakerPolicy`` are such; routing does not import the gateway.
"""

from __future__ import annotations

from typing import Protocol


class PickWeights(Protocol):
    """How much each score counts; 0 leaves it out."""

    @property
    def load(self) -> float:
        """Little work there."""

    @property
    def kv_room(self) -> float:
        """A free KV cache."""

    @property
    def prefix(self) -> float:
        """Much of the prompt read there before."""

    @property
    def latency(self) -> float:
        """First tokens came soon."""

    @property
    def session(self) -> float:
        """It served this session before."""

    @property
    def adapter(self) -> float:
        """The LoRA adapter is in use there."""


class BreakerLimits(Protocol):
    """When a replica is left alone for a while."""

    @property
    def failures(self) -> int:
        """So many in a row open the breaker; 0: any number may."""

    @property
    def failure_share(self) -> float:
        """So large a share of the latest requests opens it; above 1: never."""

    @property
    def open_seconds(self) -> float:
        """The first time; doubles up to sixteen times as long."""
