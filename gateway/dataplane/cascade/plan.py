"""One request whose tier answers first: what it is judged by, and what was decided.

A cascade can never make a request fail: whatever stands against a switch, the tier's own answer is kept.
"""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import TYPE_CHECKING

from billing.usage.event import RequestStatus, TokenUsage
from billing.usage.journal import JournalUnavailableError
from gateway.dataplane.cascade.ask_logprobs import ask_logprobs
from gateway.dataplane.cascade.record_cost import record_cost
from gateway.dataplane.choose_route import is_allowed
from gateway.dataplane.choose_tier import find_tier_obstacle
from gateway.dataplane.ended_errors import ClientGoneError, LowConfidenceError
from gateway.dataplane.estimate import make_guess
from gateway.dataplane.request_shape import demands_of
from routing.complexity.confidence import FirstTokens, measure_confidence
from routing.complexity.tier_policy import TierReason

if TYPE_CHECKING:
    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.admit import Arrival
    from gateway.dataplane.plane import DataPlane
    from gateway.dataplane.served_route import ServedRoute, ServedTiers
    from gateway.snapshot.model import CascadePolicy

_LOG = logging.getLogger(__name__)

# Where these chose the tier, it is the tier that is wanted.
_FINAL = frozenset((TierReason.OVERRIDE.value, TierReason.TOOL_LOOP.value))


class CascadeOutcome(StrEnum):
    """What became of a cascade."""

    KEPT = "kept"  # sure enough
    SWITCHED = "switched"  # the tier above answered
    RETURNED = "returned"  # it could not after all: the tier was asked again
    NO_LOGPROBS = "no_logprobs"  # the engine tells none: kept
    NO_TIER_ABOVE = "no_tier_above"  # not sure, but nothing above can answer: kept
    UNDECIDED = "undecided"  # the tier failed, or the client left, before it was decided


class Cascade:
    """Of one request."""

    __slots__ = (
        "above",
        "arrival",
        "hides_logprobs",
        "judged_body",
        "line",
        "outcome",
        "place",
        "policy",
        "seconds",
        "tiers",
        "to_engine",
    )

    def __init__(
        self,
        arrival: Arrival,
        tiers: ServedTiers,
        policy: CascadePolicy,
        *,
        place: int,
        to_engine: bytes,
        judged_body: bytes,
        hides_logprobs: bool,
    ) -> None:
        """Prepare; nothing is asked yet.

        ``place``: of the arrival's route. ``to_engine``: the body for its engine, ``judged_body``
        the same with a wish for logprobs.
        """
        self.arrival = arrival
        self.tiers = tiers
        self.policy = policy
        self.place = place
        self.to_engine = to_engine
        self.judged_body = judged_body
        self.hides_logprobs = hides_logprobs
        self.outcome: CascadeOutcome | None = None  # None: nothing is decided yet
        self.seconds: float | None = None  # once decided: what it has added before the first byte
        self.line = b""  # what the answer says of it
        self.above: tuple[ServedRoute, ...] = ()  # once switched: who is to answer, in this order

    def begin(self) -> FirstTokens:
        """Return what takes a reply's first tokens."""
        return FirstTokens(self.policy.tokens)

    def forget(self) -> None:
        """Undo what was decided of a reply that failed before any of it was sent."""
        self.outcome = self.seconds = None
        self.line = b""

    async def judge(
        self,
        plane: DataPlane,
        request: ActiveRequest,
        tokens: FirstTokens,
        *,
        usage: TokenUsage,
        held_since: float,
        is_whole: bool,
    ) -> None:
        """Return to keep the answer.

        ``held_since``: when its first token came (loop time); ``is_whole``: all of it is there.
        Raises :class:`LowConfidenceError` where a tier above is to answer; what this one has cost is
        in the journal then. Raises :class:`ClientGoneError`.
        """
        beginning = tokens.summarise()
        if beginning is None:
            self._decide(CascadeOutcome.NO_LOGPROBS, request, held_since)
            return
        decision = self.arrival.tier
        prompt_score = None if decision is None else decision.score
        confidence = measure_confidence(self.policy.weights, beginning, prompt_score)
        self.line = b"x-forebay-confidence: %.2f\r\n" % confidence
        if confidence >= self.policy.keep_at:
            self._decide(CascadeOutcome.KEPT, request, held_since)
            return
        try:
            above = await self._find_above(plane, request)
        except Exception as error:  # noqa: BLE001 - nothing of ours costs the client its answer
            _LOG.error("cascade: %s", type(error).__name__)
            above = ()
        if request.is_client_gone:
            await self.take_price(request)
            raise ClientGoneError("The client left.")
        if not above or not _try_record(plane, request, usage, is_whole=is_whole):
            await self.take_price(request)
            self._decide(CascadeOutcome.NO_TIER_ABOVE, request, held_since)
            return
        self.above = above
        self._decide(CascadeOutcome.SWITCHED, request, request.attempt_at)
        request.attempts = 0  # those till now stand in the record of what they have cost
        raise LowConfidenceError("The tier is not sure of its answer.")

    async def take_price(self, request: ActiveRequest) -> None:
        """Go on at the price of the tier itself, if the one above had been taken already."""
        if request.reservation is not None:
            arrival = self.arrival
            price = arrival.route.find_price(arrival.caller.price_book_id, arrival.at_us)
            await request.reservation.follow_price(price)

    def _decide(self, outcome: CascadeOutcome, request: ActiveRequest, since: float) -> None:
        self.outcome = outcome
        self.seconds = request.clock() - since

    async def _find_above(
        self, plane: DataPlane, request: ActiveRequest
    ) -> tuple[ServedRoute, ...]:
        """Return the tiers above, from the first that can answer now; its money is held then."""
        arrival = self.arrival
        guess = request.guess or make_guess(
            plane.estimator.kind_of(arrival.caller.lineage, arrival.route.route.id),
            arrival.wanted,
            arrival.body,
        )
        routes = self.tiers.routes[self.place + 1 :]
        demands = demands_of(arrival, guess, [route.fleet for route in routes])
        for number, route in enumerate(routes):
            if not is_allowed(arrival.caller, route.route.name):
                continue
            if _has_to_wait(route, plane.loop.time()):
                continue  # and an answer is there
            if find_tier_obstacle(route, demands, plane.loop.time()) is not None:
                continue
            price = route.find_price(arrival.caller.price_book_id, arrival.at_us)
            if request.reservation is None or await request.reservation.follow_price(price):
                return routes[number:]
        return ()


def plan_cascade(arrival: Arrival, tiers: ServedTiers, to_engine: bytes) -> Cascade | None:
    """Return the cascade of a request for which a tier was chosen; None: that tier just answers.

    ``to_engine``: the body for the tier's engine.
    """
    policy, decision = tiers.policy.cascade, arrival.tier
    if policy is None or decision is None or decision.reason in _FINAL:
        return None
    place = tiers.names.index(decision.tier)
    if place == len(tiers.names) - 1 or arrival.route.deployment_id in tiers.without_logprobs:
        return None
    asked = ask_logprobs(to_engine, arrival.wanted)
    if asked is None:
        return None
    return Cascade(
        arrival,
        tiers,
        policy,
        place=place,
        to_engine=to_engine,
        judged_body=asked.body,
        hides_logprobs=asked.hides_logprobs,
    )


def _has_to_wait(route: ServedRoute, now: float) -> bool:
    """Tell whether a request would wait for a place at ``route``, or for it to wake."""
    if route.fleet.may_sleep and route.fleet.is_asleep(now):
        return True
    queue = route.queue
    if queue is None or (capacity := queue.capacity) is None:
        return False
    return bool(queue.waiting) or queue.running >= capacity


def _try_record(
    plane: DataPlane, request: ActiveRequest, usage: TokenUsage, *, is_whole: bool
) -> bool:
    """Record what is given up; False where the journal has no room, so that it may not be."""
    status = RequestStatus.COMPLETED if is_whole else RequestStatus.CLIENT_CLOSED
    try:
        record_cost(plane, request, usage, status)
    except JournalUnavailableError:
        return False
    return True
