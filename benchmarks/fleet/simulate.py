"""One run: requests arrive, a policy sends them, replicas serve them, and all of it is timed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from backends.simulated.batch import Listener
from backends.simulated.pace import Pace
from benchmarks.fleet.policies import Policy, PolicyMaker, Sent
from benchmarks.fleet.simulated_replica import SimulatedReplica
from benchmarks.fleet.virtual_clock import VirtualClock
from benchmarks.fleet.workload import Request

PROBE_SECONDS = 1.0


@dataclass(slots=True)
class Timing:
    """Seconds since the request's arrival."""

    arrived_at: float
    output_tokens: int
    ttft: float = 0.0
    e2e: float = 0.0

    @property
    def tpot(self) -> float:
        """Seconds per output token after the first."""
        return (self.e2e - self.ttft) / max(self.output_tokens - 1, 1)


@dataclass(slots=True)
class Run:
    """What came of one run; timings in the order of arrival."""

    timings: list[Timing] = field(default_factory=list)
    finished_at: list[float] = field(default_factory=list)  # ascending
    prompt_tokens: int = 0
    hit_tokens: int = 0


class Fleet:
    """The replicas, the workers before them and the clock."""

    def __init__(
        self, make: PolicyMaker, paces: Sequence[Pace], *, workers: int, seed: int
    ) -> None:
        self._rng = random.Random(seed)
        self._clock = VirtualClock()
        self._replicas = [SimulatedReplica(self._clock, pace) for pace in paces]
        self._workers: list[Policy] = [
            make(len(paces), random.Random(self._rng.random())) for _ in range(workers)
        ]
        self._left = 0
        self._run = Run()

    def run(self, requests: Sequence[Request]) -> Run:
        """Serve all of ``requests``, however long it takes."""
        self._left = len(requests)
        for request in requests:
            self._clock.call_at(request.arrives_at, partial(self._send, request))
        self._probe()
        self._clock.run()
        batches = [replica.batch for replica in self._replicas]
        self._run.prompt_tokens = sum(batch.queried_tokens for batch in batches)
        self._run.hit_tokens = sum(batch.found_tokens for batch in batches)
        return self._run

    def _send(self, request: Request) -> None:
        policy = self._rng.choice(self._workers)
        place, sent = policy.send(request, self._clock.now)
        timing = Timing(self._clock.now, request.output_tokens)
        self._run.timings.append(timing)
        self._replicas[place].take(request, self._listen(timing, sent))

    def _listen(self, timing: Timing, sent: Sent) -> Listener:
        def hear(tokens: int, is_last: bool) -> None:
            now = self._clock.now
            if tokens == 1:
                timing.ttft = now - timing.arrived_at
                sent.first_token(now)
            if is_last:
                timing.e2e = now - timing.arrived_at
                sent.end(now)
                self._left -= 1
                self._run.finished_at.append(now)

        return hear

    def _probe(self) -> None:
        for policy in self._workers:
            policy.probe(self._replicas, self._clock.now)
        if self._left:
            self._clock.call_at(self._clock.now + PROBE_SECONDS, self._probe)
