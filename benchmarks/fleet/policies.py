"""The ways to choose a replica that are compared. Each data-plane worker has one of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from benchmarks.fleet.simulated_replica import SimulatedReplica
from benchmarks.fleet.workload import Request
from gateway.snapshot.model import BreakerPolicy, PickPolicy
from routing.load_view import Attempt, LoadView
from routing.outcome import Outcome
from routing.picker import FleetMemory, choose
from routing.prefix_index import BLOCK_BYTES
from routing.types import RequestShape

# What the gateway guesses of each output: it does not know the real one.
GUESSED_OUTPUT_TOKENS = 180
_TOKENS_PER_BLOCK = 256


class Sent(Protocol):
    """What one request that was sent tells its policy."""

    def first_token(self, now: float) -> None:
        """Its first token came."""

    def end(self, now: float) -> None:
        """It is over."""


class Policy(Protocol):
    """One way to choose."""

    def send(self, request: Request, now: float) -> tuple[int, Sent]:
        """Return the place of the replica that gets ``request``."""

    def probe(self, replicas: Sequence[SimulatedReplica], now: float) -> None:
        """Read what the engines tell of themselves."""


class _Untold:
    def first_token(self, now: float) -> None:
        pass

    def end(self, now: float) -> None:
        pass


class RoundRobin:
    """One after the other."""

    def __init__(self, replicas: int, rng: random.Random) -> None:
        self._replicas = replicas
        self._next = rng.randrange(replicas)  # workers do not start in step
        self._sent = _Untold()

    def send(self, request: Request, now: float) -> tuple[int, Sent]:
        place = self._next
        self._next = (place + 1) % self._replicas
        return place, self._sent

    def probe(self, replicas: Sequence[SimulatedReplica], now: float) -> None:
        pass


class _Counted:
    def __init__(self, counts: list[int], place: int) -> None:
        self._counts = counts
        self._place = place
        counts[place] += 1

    def first_token(self, now: float) -> None:
        pass

    def end(self, now: float) -> None:
        self._counts[self._place] -= 1


class LeastRequests:
    """The fewest requests of this worker in flight; by chance among equals."""

    def __init__(self, replicas: int, rng: random.Random) -> None:
        self._counts = [0] * replicas
        self._rng = rng

    def send(self, request: Request, now: float) -> tuple[int, Sent]:
        least = min(self._counts)
        place = self._rng.choice([i for i, count in enumerate(self._counts) if count == least])
        return place, _Counted(self._counts, place)

    def probe(self, replicas: Sequence[SimulatedReplica], now: float) -> None:
        pass


class _OurAttempt:
    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    def first_token(self, now: float) -> None:
        self._attempt.first_token(now)

    def end(self, now: float) -> None:
        self._attempt.end(now, Outcome.ANSWERED)


class Ours:
    """The real thing: routing.picker, on what a data plane knows."""

    def __init__(self, replicas: int, rng: random.Random, policy: PickPolicy | None = None) -> None:
        self._policy = PickPolicy() if policy is None else policy
        self._views = [LoadView(str(place), BreakerPolicy()) for place in range(replicas)]
        self._rng = rng
        self._memory = FleetMemory()

    def send(self, request: Request, now: float) -> tuple[int, Sent]:
        shape = RequestShape(
            request.input_tokens,
            GUESSED_OUTPUT_TOKENS,
            session=request.session,
            blocks=request.router_blocks,
            prompt_bytes=BLOCK_BYTES * request.input_tokens // _TOKENS_PER_BLOCK,
            home_key=request.home_key,
        )
        decision = choose(
            self._views,
            shape,
            self._policy,
            now=now,
            rng=self._rng,
            memory=self._memory,
        )
        if decision is None:
            raise RuntimeError("no replica can do it")
        view = decision.view
        self._memory.record(view, shape)
        attempt = view.begin(shape, now, cached_tokens=decision.cached_tokens)
        return int(view.replica_id), _OurAttempt(attempt)

    def probe(self, replicas: Sequence[SimulatedReplica], now: float) -> None:
        for view, replica in zip(self._views, replicas, strict=True):
            view.engine_running = replica.batch.running
            view.engine_waiting = replica.batch.waiting
            view.kv_usage = replica.batch.cache_usage
            view.kv_capacity_tokens = replica.kv_cache_tokens
            view.probed_at = now


PolicyMaker = Callable[[int, random.Random], Policy]
POLICIES: dict[str, PolicyMaker] = {
    "round_robin": RoundRobin,
    "least_requests": LeastRequests,
    "ours": Ours,
}
