"""One replica: the simulated engine's batch and prefix cache, stepped on the virtual clock."""

from __future__ import annotations

from backends.simulated.batch import Batch, Listener, Sequence
from backends.simulated.pace import Pace
from benchmarks.fleet.virtual_clock import VirtualClock
from benchmarks.fleet.workload import Request


class SimulatedReplica:
    """Takes requests, and steps while it has any."""

    def __init__(self, clock: VirtualClock, pace: Pace) -> None:
        self._clock = clock
        self._is_stepping = False
        self.kv_cache_tokens = pace.kv_cache_tokens
        self.batch = Batch(pace)

    def take(self, request: Request, listener: Listener) -> None:
        """Serve a request; ``listener`` hears of each token."""
        self.batch.add(
            Sequence(request.input_tokens, request.output_tokens, listener, request.engine_blocks)
        )
        if not self._is_stepping:
            self._step()

    def _step(self) -> None:
        seconds = self.batch.begin_step()
        self._is_stepping = seconds is not None
        if seconds is not None:
            self._clock.call_at(self._clock.now + seconds, self._end_step)

    def _end_step(self) -> None:
        self.batch.end_step()
        self._step()
