"""What one data-plane worker knows of the load of one replica. Pure.

Three sources: what we sent there ourselves, exact and of this moment; what the prober read of the
engine, of everybody's requests and a little old; what earlier answers took.
"""

from __future__ import annotations

from math import exp
from zlib import crc32

import msgspec

from routing.circuit_breaker import CircuitBreaker
from routing.outcome import Outcome
from routing.policies import BreakerLimits
from routing.types import ReplicaState, RequestShape

TTFT_SHARE = 0.2  # of a new time to first token in the average, when they come often
TTFT_DECAY_SECONDS = 30.0  # an average that old counts for 1/e of what it did
MEAN_INPUT_TOKENS = 500.0  # of requests that others sent, until we have seen some of ours
DEFAULT_COOL_DOWN_SECONDS = 1.0  # after a 429 or 503 that names no time


class Attempt(msgspec.Struct, eq=False):
    """One try at one replica: what it still accounts for there, so that it is taken back exactly."""

    view: LoadView
    ticket: int  # of the breaker
    started_at: float
    waiting_tokens: int
    output_tokens: int  # as guessed
    output_tokens_left: int
    has_first_token: bool = False
    is_ended: bool = False

    def first_token(self, now: float) -> None:
        """The first content came; only the first call counts."""
        self.view.first_token(self, now)

    def progress(self, output_tokens: int) -> None:
        """So many tokens have come in all, as far as anybody counts them."""
        self.view.progress(self, output_tokens)

    def end(
        self, now: float, outcome: Outcome, *, retry_after_seconds: float | None = None
    ) -> None:
        """It is over, however; only the first call counts."""
        self.view.end(self, now, outcome, retry_after_seconds=retry_after_seconds)


class LoadView:
    """The state of one replica in one worker. Counters are never below 0, and 0 when idle."""

    __slots__ = (
        "adapters",
        "breaker",
        "context_tokens",
        "engine_running",
        "engine_waiting",
        "features",
        "home_seed",
        "in_flight",
        "is_draining",
        "kv_capacity_tokens",
        "kv_usage",
        "loaded_adapters",
        "max_in_flight",
        "mean_input_tokens",
        "outstanding_tokens",
        "probed_at",
        "replica_id",
        "seconds_a_token",
        "state",
        "ttft",
        "ttft_at",
        "waiting_input_tokens",
        "waiting_requests",
        "waiting_since",
        "weight",
    )

    def __init__(
        self,
        replica_id: str,
        limits: BreakerLimits,
        *,
        weight: float = 1.0,
        is_draining: bool = False,
        max_in_flight: int | None = None,
        state: ReplicaState = ReplicaState.READY,
    ) -> None:
        self.replica_id = replica_id
        self.home_seed = crc32(replica_id.encode())  # the same in every worker
        # From the Snapshot; settable.
        self.weight = weight
        self.is_draining = is_draining
        self.max_in_flight = max_in_flight  # of this worker's requests; None: any number
        # What it can do, as an admin or the engine says; None: not told, which counts as anything.
        self.context_tokens: int | None = None
        self.features: frozenset[str] | None = None
        self.adapters: frozenset[str] | None = None  # that it can serve
        # From the prober; None: not told.
        self.state = state
        self.engine_running: int | None = None
        self.engine_waiting: int | None = None
        self.kv_usage: float | None = None  # 0..1, of running requests
        self.kv_capacity_tokens: int | None = None
        self.loaded_adapters: frozenset[str] | None = None  # in use there at the moment
        self.probed_at: float | None = None
        # Ours.
        self.in_flight = 0
        self.waiting_requests = 0  # of in_flight, those without a first token
        self.waiting_since = 0.0  # when the latest of them came that found no other
        self.waiting_input_tokens = 0  # theirs, less what the engine has cached
        self.outstanding_tokens = 0  # guess of all that is still to be read and made
        self.mean_input_tokens = MEAN_INPUT_TOKENS
        self.ttft: float | None = None  # seconds, averaged; measured last at ttft_at
        self.ttft_at = 0.0
        self.seconds_a_token: float | None = None  # of a prompt, until the first token; averaged
        self.breaker = CircuitBreaker(limits)

    def begin(self, shape: RequestShape, now: float, *, cached_tokens: int = 0) -> Attempt:
        """Count a request that is sent now; ``cached_tokens`` of its prompt are there already."""
        self.in_flight += 1
        if not self.waiting_requests:
            self.waiting_since = now
        self.waiting_requests += 1
        waiting, output = shape.input_tokens, shape.output_tokens
        if waiting or output:  # else there was nothing to choose, and nobody has guessed
            waiting = max(waiting - cached_tokens, 0)
            self.waiting_input_tokens += waiting
            self.outstanding_tokens += waiting + output
            self.mean_input_tokens += (waiting - self.mean_input_tokens) * 0.05
        return Attempt(self, self.breaker.begin(now), now, waiting, output, output)

    def first_token(self, attempt: Attempt, now: float) -> None:
        """Its prompt has been read. Good for the breaker: long streams end late."""
        if attempt.has_first_token or attempt.is_ended:
            return
        attempt.has_first_token = True
        tokens = attempt.waiting_tokens
        self._stop_waiting(attempt)
        self._measure(now - attempt.started_at, now, tokens)
        self.breaker.succeed(attempt.ticket, now)

    def progress(self, attempt: Attempt, output_tokens: int) -> None:
        """Take ``output_tokens`` that have come, in all, off what is outstanding."""
        if attempt.is_ended:
            return
        left = max(attempt.output_tokens - output_tokens, 0)
        self.outstanding_tokens += left - attempt.output_tokens_left
        attempt.output_tokens_left = left

    def end(
        self,
        attempt: Attempt,
        now: float,
        outcome: Outcome,
        *,
        retry_after_seconds: float | None = None,
    ) -> None:
        """Take back all that the attempt accounts for, and tell the breaker how it ended."""
        if attempt.is_ended:
            return
        attempt.is_ended = True
        if not attempt.has_first_token:
            self._stop_waiting(attempt)
        self.in_flight -= 1
        if attempt.output_tokens_left:
            self.outstanding_tokens -= attempt.output_tokens_left
            attempt.output_tokens_left = 0
        breaker = self.breaker
        if outcome is Outcome.ANSWERED:
            if not attempt.has_first_token:  # a whole reply: its first token is not seen
                breaker.succeed(attempt.ticket, now)
        elif outcome is Outcome.FAILED:
            breaker.fail(attempt.ticket, now)
        else:
            breaker.let_go(attempt.ticket)
            if outcome is Outcome.BUSY:
                seconds = retry_after_seconds
                breaker.cool_down(DEFAULT_COOL_DOWN_SECONDS if seconds is None else seconds, now)

    def _stop_waiting(self, attempt: Attempt) -> None:
        self.waiting_requests -= 1
        if attempt.waiting_tokens:
            self.waiting_input_tokens -= attempt.waiting_tokens
            self.outstanding_tokens -= attempt.waiting_tokens
            attempt.waiting_tokens = 0

    def _measure(self, seconds: float, now: float, input_tokens: int) -> None:
        if input_tokens:
            rate, before = seconds / input_tokens, self.seconds_a_token
            self.seconds_a_token = rate if before is None else before + (rate - before) * TTFT_SHARE
        if self.ttft is None:
            self.ttft = seconds
        else:  # the older the average, the more the new one counts
            kept = (1.0 - TTFT_SHARE) * exp((self.ttft_at - now) / TTFT_DECAY_SECONDS)
            self.ttft = seconds + (self.ttft - seconds) * kept
        self.ttft_at = now
