"""CPU of one admission in this process: no I/O, no event loop."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from benchmarks.admission.claims import BUDGETS, LIMITS, PLAN, PRICE, make_claim
from benchmarks.admission.settled_collector import settled_collector
from billing.usage.event import RequestStatus, TokenUsage
from gateway.dataplane.estimate import Estimator, make_guess
from gateway.dataplane.limits.local_limiter import LocalLimiter
from gateway.dataplane.reservation import make_reservation
from gateway.openai_schema.requests import ChatCompletionRequest
from gateway.snapshot.model import Snapshot

_CALLS = 2_000  # in a round
_USAGE = TokenUsage(50, None, 40, None)
_BODY = b'{"model":"m","messages":[{"role":"user","content":"' + b"word " * 40 + b'"}]}'


@dataclass(frozen=True)
class InProcess:
    """Microseconds of CPU a request."""

    whole_median_us: float
    whole_lowest_us: float
    limiter_median_us: float  # of that, the limiter's own part: admit and settle
    limiter_lowest_us: float
    rounds: int


def measure(rounds: int) -> InProcess:
    """Measure the whole admission and the limiter alone, in turn."""
    limiter = LocalLimiter("jrn_bench", takes_ahead=True)  # as the data plane has it
    limiter.use_snapshot(Snapshot(1, 1, limits=LIMITS, budgets=BUDGETS))
    request = msgspec.json.decode(_BODY, type=ChatCompletionRequest)
    estimator = Estimator()

    def admit_whole(number: int) -> None:
        guess = make_guess(estimator.kind_of("key_1", "route_1"), request, _BODY)
        now_us = time.time_ns() // 1000
        reservation = make_reservation(limiter, PLAN, guess, PRICE, "req", now_us, False)
        reservation.ask()
        reservation.settle(RequestStatus.COMPLETED, _USAGE, (1, number))
        guess.learn(_USAGE)

    def admit_only(number: int) -> None:
        claim = make_claim(number)
        limiter.admit(claim)
        limiter.settle(
            claim, input_tokens=90, output_tokens=40, charge_nano=900, journal_point=(1, number)
        )

    whole: list[float] = []
    limiter_only: list[float] = []
    _run(admit_whole)
    with settled_collector():
        for _ in range(rounds):
            whole.append(_run(admit_whole))
            limiter_only.append(_run(admit_only))
    return InProcess(
        *(statistics.median(whole), min(whole)),
        *(statistics.median(limiter_only), min(limiter_only)),
        rounds,
    )


def _run(admit: Callable[[int], None]) -> float:
    begun = time.process_time()
    for number in range(_CALLS):
        admit(number)
    return (time.process_time() - begun) / _CALLS * 1e6
