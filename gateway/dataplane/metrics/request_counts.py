"""What is counted on the request path. Everything here is a few integer additions, without a wait."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from time import time_ns
from typing import TYPE_CHECKING, Protocol

from billing.usage.event import RequestStatus
from gateway.dataplane.metrics import families
from gateway.dataplane.metrics.counter_page import CounterPage

if TYPE_CHECKING:
    from billing.usage.event import RequestIdentity, TierDecision, TokenUsage
    from gateway.errors import ApiError
    from routing.outcome import Outcome

_TTFT_BOUNDS, _TTFT_SUM = families.TTFT.bounds_us, families.TTFT.width - 1
_TPOT_BOUNDS, _TPOT_SUM = families.TPOT.bounds_us, families.TPOT.width - 1
_DURATION_BOUNDS, _DURATION_SUM = families.DURATION.bounds_us, families.DURATION.width - 1
_COMPLETED = RequestStatus.COMPLETED


class Settled(Protocol):
    """What is counted of a request that has ended."""

    identity: RequestIdentity
    status: RequestStatus
    http_status: int
    usage: TokenUsage
    first_token_at_us: int | None
    error_code: str | None


class _RouteSlots:
    """The slots of one route, found once."""

    __slots__ = (
        "cached_tokens",
        "duration",
        "ends",
        "input_tokens",
        "output_tokens",
        "tpot",
        "ttft",
    )

    def __init__(self, page: CounterPage, route: str) -> None:
        self.ends: dict[tuple[RequestStatus, int], int] = {}  # by how a request ended
        self.input_tokens = page.find(families.INPUT_TOKENS, route)
        self.cached_tokens = page.find(families.CACHED_INPUT_TOKENS, route)
        self.output_tokens = page.find(families.OUTPUT_TOKENS, route)
        self.ttft = page.find(families.TTFT, route)
        self.tpot = page.find(families.TPOT, route)
        self.duration = page.find(families.DURATION, route)


class RequestCounts:
    """One worker's counters of requests, attempts and refusals."""

    def __init__(self, page: CounterPage) -> None:
        """Count on in ``page``, of which nobody else is the writer."""
        page.adopt()
        self.page = page
        self._values = page.counts
        self._routes: dict[str, _RouteSlots] = {}
        self._attempts: dict[tuple[str, Outcome], int] = {}

    def settled(self, request: Settled) -> None:
        """A request was settled. A clock that was set back in between makes no sum go down."""
        values, status, http_status = self._values, request.status, request.http_status
        identity, usage = request.identity, request.usage
        route, first_token_at_us = identity.route, request.first_token_at_us
        slots = self._routes.get(route)
        if slots is None:
            slots = self._routes[route] = _RouteSlots(self.page, route)
        slot = slots.ends.get((status, http_status))
        if slot is None:
            slot = self._begin_end(slots, route, status, http_status)
        values[slot] += 1
        output = usage.output_tokens or 0
        values[slots.input_tokens] += usage.input_tokens or 0
        values[slots.cached_tokens] += usage.cached_input_tokens or 0
        values[slots.output_tokens] += output
        if first_token_at_us is not None:
            span = max(0, first_token_at_us - identity.started_at_us)
            values[slots.ttft + bisect_left(_TTFT_BOUNDS, span)] += 1
            values[slots.ttft + _TTFT_SUM] += span
            if output > 1:
                span = max(0, time_ns() // 1000 - first_token_at_us) // (output - 1)
                values[slots.tpot + bisect_left(_TPOT_BOUNDS, span)] += 1
                values[slots.tpot + _TPOT_SUM] += span
        if status is _COMPLETED:
            span = max(0, time_ns() // 1000 - identity.started_at_us)
            values[slots.duration + bisect_left(_DURATION_BOUNDS, span)] += 1
            values[slots.duration + _DURATION_SUM] += span
        elif http_status == 503:
            self._count(families.REFUSALS, "503", request.error_code or "unavailable", "")

    def attempt_ended(self, deployment: str, outcome: Outcome) -> None:
        """An attempt at a replica of ``deployment`` ended."""
        slot = self._attempts.get((deployment, outcome))
        if slot is None:
            slot = self.page.find(families.ATTEMPTS, deployment, outcome.value)
            self._attempts[deployment, outcome] = slot
        self._values[slot] += 1

    def retried(self, deployment: str, outcome: Outcome) -> None:
        """A request is tried again after an attempt that ended with ``outcome``."""
        self._count(families.RETRIES, deployment, outcome.value)

    def fell_back(self, route: str, fallback: str) -> None:
        """A request of ``route`` goes on as one of ``fallback``."""
        self._count(families.FALLBACKS, route, fallback)

    def tier_chosen(self, tier: TierDecision) -> None:
        """A route has chosen among its tiers."""
        self._count(families.TIERS, tier.requested_route, tier.tier, tier.reason)

    def shadowed(self, route: str, outcome: str) -> None:
        """A request that was to be looked at twice ended as ``outcome``."""
        self._count(families.SHADOWS, route, outcome)

    def cascaded(self, route: str, outcome: str, seconds: float | None) -> None:
        """A request of ``route`` whose tier answered first has ended; that added so much, if decided."""
        self._count(families.CASCADES, route, outcome)
        if seconds is not None:
            slot = self.page.find(families.CASCADE_DELAY, route, outcome)
            self._observe(slot, families.CASCADE_DELAY, seconds)

    def waited(self, route: str, seconds: float) -> None:
        """A request has left the queue, with a place or without."""
        self._observe(self.page.find(families.QUEUE_WAIT, route), families.QUEUE_WAIT, seconds)

    def lagged(self, seconds: float) -> None:
        """The event loop came back so late."""
        self._observe(self.page.find(families.LOOP_LAG), families.LOOP_LAG, seconds)

    def refused(self, error: ApiError) -> None:
        """A request was answered with ``error`` without having been admitted."""
        self._count(
            families.REFUSALS, str(error.status), error.code or error.type, _scope_of(error)
        )

    def _count(self, family: families.Family, *labels: str) -> None:
        self._values[self.page.find(family, *labels)] += 1

    def _observe(self, slot: int, family: families.Family, seconds: float) -> None:
        span = max(int(seconds * 1_000_000), 0)
        self._values[slot + bisect_left(family.bounds_us, span)] += 1
        self._values[slot + family.width - 1] += span

    def _begin_end(
        self, slots: _RouteSlots, route: str, status: RequestStatus, http_status: int
    ) -> int:
        status_class = f"{http_status // 100}xx"
        slot = self.page.find(families.REQUESTS, route, status_class, status.value)
        slots.ends[status, http_status] = slot
        return slot


def _scope_of(error: ApiError) -> str:
    """Return whose limit or budget struck; empty where none did."""
    for part in ("limit", "budget", "credit"):
        told = None if error.details is None else error.details.get(part)
        if isinstance(told, Mapping):
            return str(told.get("scope", "organization"))
    return ""
