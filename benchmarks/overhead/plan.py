"""How much is measured: the sizes of a full run and of a quick one."""

from __future__ import annotations

from dataclasses import dataclass

MEASUREMENTS = (
    "sat",
    "one",
    "rate",
    "burst",
    "paced",
    "held",
    "memory",
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The sizes of one benchmark; spans in seconds unless named otherwise."""

    is_quick: bool
    rounds: int  # each figure is an average of this many, taken turn by turn between the targets
    slices: int  # of saturation and bursts in a round: the targets alternate, second by second
    warm_up_requests: int
    saturation_connections: int
    saturation_seconds: float  # of one slice
    one_connection_seconds: float
    rate_seconds: float
    rate_share: float  # of the target's own saturation
    burst_streams: int
    burst_chunks: int
    burst_seconds: float  # of one slice
    paced_streams: int
    paced_chunks: int
    paced_step_ms: int
    held_steps: tuple[int, ...]  # concurrent paced streams, climbing
    held_fallback_steps: tuple[int, ...]  # tried downwards when the first of `held_steps` fails
    memory_requests: int
    memory_batches: int

    @property
    def paced_seconds(self) -> float:
        """How long one paced stream takes at its source."""
        return self.paced_chunks * self.paced_step_ms / 1000


def full_plan(*, rounds: int, memory_requests: int) -> Plan:
    """Return the sizes whose figures count."""
    return Plan(
        is_quick=False,
        rounds=rounds,
        slices=6,
        warm_up_requests=5000,
        saturation_connections=64,
        saturation_seconds=1,
        one_connection_seconds=4,
        rate_seconds=5,
        rate_share=0.3,
        burst_streams=32,
        burst_chunks=200,
        burst_seconds=1,
        paced_streams=500,
        paced_chunks=200,
        paced_step_ms=20,
        held_steps=(500, 650, 800, 1000, 1300),
        held_fallback_steps=(400, 300, 200, 100),
        memory_requests=memory_requests,
        memory_batches=20,
    )


def quick_plan(*, rounds: int, memory_requests: int) -> Plan:
    """Return sizes that show in seconds that everything works; the figures mean little."""
    return Plan(
        is_quick=True,
        rounds=rounds,
        slices=1,
        warm_up_requests=100,
        saturation_connections=64,
        saturation_seconds=0.3,
        one_connection_seconds=0.2,
        rate_seconds=0.3,
        rate_share=0.3,
        burst_streams=8,
        burst_chunks=200,
        burst_seconds=0.3,
        paced_streams=50,
        paced_chunks=20,
        paced_step_ms=10,
        held_steps=(50, 100),
        held_fallback_steps=(20,),
        memory_requests=memory_requests,
        memory_batches=4,
    )
