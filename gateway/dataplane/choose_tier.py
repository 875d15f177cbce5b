"""Between steps 2 and 3: which of a route's tiers serves. It never makes a request fail.

Only a tier's name that does not exist is refused. Else there is always a tier: where nothing can be
scored the default one, where that cannot serve the next that can (``routing/complexity/tier_policy.py``).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from billing.usage.event import TierDecision
from gateway.dataplane.choose_route import is_allowed
from gateway.dataplane.estimate import make_guess
from gateway.dataplane.read_conversation import Conversation, read_conversation
from gateway.dataplane.request_shape import demands_of, names_session, session_name
from gateway.errors import InvalidRequestError, shorten
from routing.complexity.tier_policy import (
    Remembered,
    TierReason,
    Wanted,
    find_tier,
    score_texts,
    want_tier,
)
from routing.filters import Obstacle, find_missing_capability, find_obstacle

if TYPE_CHECKING:
    from gateway.dataplane.admit import Arrival
    from gateway.dataplane.http.head import RequestHeaders
    from gateway.dataplane.plane import DataPlane
    from gateway.dataplane.served_route import ServedRoute, ServedTiers
    from routing.load_view import LoadView
    from routing.types import RequestShape

TIER_HEADER = b"x-forebay-tier"
_METADATA = "metadata.forebay_tier"

_LOG = logging.getLogger(__name__)

_OUT = frozenset((Obstacle.DRAINING, Obstacle.FAILED, Obstacle.STARTING, Obstacle.BREAKER_OPEN))
_INCAPABLE = frozenset((Obstacle.LACKS_FEATURE, Obstacle.LACKS_ADAPTER))
# The least that stands against a tier's replicas is what stands against the tier.
_OBSTACLES = (TierReason.HEALTH, TierReason.CONTEXT, TierReason.CAPABILITY)


async def choose_tier(
    plane: DataPlane, arrival: Arrival, tiers: ServedTiers, headers: RequestHeaders
) -> Arrival:
    """Return the arrival as one of a tier's; as it was where the Caller may use none of them.

    Raises :class:`InvalidRequestError` for a tier that does not exist.
    """
    choice = _Choice(plane, arrival, tiers, headers)
    await choice.read()
    named = choice.find_override()
    try:
        wanted = choice.want(named)
    except Exception as error:  # noqa: BLE001 - a request never fails for want of a tier
        _log_failure(arrival, error)
        wanted = Wanted(tiers.default, TierReason.SCORING_FAILED)
    try:
        place, reason = choice.find_place(wanted)
    except Exception as error:  # noqa: BLE001
        _log_failure(arrival, error)
        place, reason = wanted.tier, wanted.reason
    if place is None:
        return arrival
    choice.remember(wanted, place, reason)
    decision = _decide(arrival, tiers, place, reason, wanted.score)
    if plane.counts is not None:
        plane.counts.tier_chosen(decision)
    return arrival._replace(
        route=tiers.routes[place], tier=decision, conversation=choice.conversation
    )


class _Choice:
    """The choice for one request."""

    def __init__(
        self, plane: DataPlane, arrival: Arrival, tiers: ServedTiers, headers: RequestHeaders
    ) -> None:
        self._plane = plane
        self._arrival = arrival
        self._tiers = tiers
        self._headers = headers
        self._talk: Conversation | None = None  # None: it could not be read
        self._known: Remembered | None = None
        self._is_new = False  # it begins here: what is known is of another that began alike
        self.conversation: bytes | None = None  # digest of what tells it apart

    async def read(self) -> None:
        """Read the conversation, and recall what is known of it."""
        is_named = names_session(self._headers)
        try:
            self._talk = talk = read_conversation(self._arrival.body)
            self.conversation = self._name(talk)
            self._is_new = talk.turn.is_first and not is_named
            if self.conversation is not None and not self._is_new:
                self._known = await self._plane.tier_memory.recall(
                    self.conversation,
                    self._tiers.names,
                    only_floor=is_named and talk.turn.is_boundary,
                )
        except Exception as error:  # noqa: BLE001
            _log_failure(self._arrival, error)

    def find_override(self) -> str | None:
        """Return the tier that the request names. Raises as :func:`choose_tier`."""
        header, param = self._headers.get(TIER_HEADER), TIER_HEADER.decode()
        named = None if header is None else header.decode("latin-1").strip() or None
        if named is None and self._talk is not None:
            named, param = self._talk.tier, _METADATA
        if named is not None and named not in self._tiers.names:
            model, names = self._arrival.wanted.model, ", ".join(self._tiers.names)
            raise InvalidRequestError(
                f"The model {model!r} has no tier {shorten(named)!r}; it has {names}."
                if named != ""
                else f"{param} must be a string, a tier of the model {model!r}: {names}.",
                code="unknown_tier",
                param=param,
            )
        return named

    def want(self, named: str | None) -> Wanted:
        """Return the tier that the request should have, whether or not that can serve."""
        tiers, talk = self._tiers, self._talk
        if named is not None:
            return Wanted(tiers.names.index(named), TierReason.OVERRIDE)
        if talk is None:
            return Wanted(tiers.default, TierReason.SCORING_FAILED)
        policy, project_id = tiers.policy, self._arrival.caller.project_id
        return want_tier(
            talk.turn,
            self._known,
            thresholds=policy.project_thresholds.get(project_id, policy.thresholds),
            default=tiers.default,
            score=partial(score_texts, tiers.predictor, budget_ms=policy.budget_ms),
        )

    def find_place(self, wanted: Wanted) -> tuple[int | None, TierReason]:
        """Return the tier that serves in the end, and why; None: the Caller may use none."""
        plane, arrival, routes = self._plane, self._arrival, self._tiers.routes
        caller = arrival.caller
        plan = plane.plan_of(caller, arrival.route)
        has_budgets = plan is not None and bool(plan.budgets)
        kind = plane.estimator.kind_of(caller.lineage, routes[wanted.tier].route.id)
        guess = make_guess(kind, arrival.wanted, arrival.body)
        demands = demands_of(arrival, guess, [route.fleet for route in routes])
        now = plane.loop.time()
        obstacles: list[TierReason | None] = []
        for route in routes:
            if not is_allowed(caller, route.route.name):
                obstacles.append(TierReason.NOT_ALLOWED)
            elif has_budgets and route.find_price(caller.price_book_id, arrival.at_us) is None:
                obstacles.append(TierReason.UNPRICED)
            else:
                obstacles.append(find_tier_obstacle(route, demands, now))
        place = find_tier(wanted.tier, obstacles, [_longest(route) for route in routes])
        against = obstacles[wanted.tier]
        if place is None and against is TierReason.UNPRICED:
            place = wanted.tier  # admission says that there is no price
        if place == wanted.tier or against is None:
            return place, wanted.reason
        return place, against

    def remember(self, wanted: Wanted, place: int, reason: TierReason) -> None:
        """Note where the conversation is now.

        What an override, a tool loop or an outage did lasts for its turn; all else holds it up,
        what a tool loop's tier cannot do too.
        """
        if self.conversation is None:
            return
        floor = 0 if self._known is None else self._known.floor
        if wanted.reason not in {TierReason.OVERRIDE, TierReason.TOOL_LOOP}:
            floor = max(floor, wanted.tier)
        is_held = reason in {TierReason.CONTEXT, TierReason.CAPABILITY}
        if is_held and wanted.reason is not TierReason.OVERRIDE:
            floor = max(floor, place)
        self._plane.tier_memory.record(
            self.conversation,
            self._tiers.names,
            floor=floor,
            served=place,
            is_new=self._is_new,
        )

    def _name(self, talk: Conversation) -> bytes | None:
        """Return a digest of the conversation; a user has many, so how it begins tells them apart."""
        arrival, named = self._arrival, session_name(self._headers, self._arrival.wanted)
        beginning = None if names_session(self._headers) else talk.beginning
        if named is None and beginning is None:
            return None
        return self._plane.tier_memory.digest(
            arrival.caller.lineage, arrival.route.route.id, named, beginning
        )


def find_tier_obstacle(route: ServedRoute, demands: RequestShape, now: float) -> TierReason | None:
    """Return what keeps all replicas of a tier from serving; None: one can."""
    found = {_obstacle_of(view, demands, now) for view in route.fleet.views}
    if None in found:
        return None
    return next((reason for reason in _OBSTACLES if reason in found), TierReason.HEALTH)


def _obstacle_of(view: LoadView, demands: RequestShape, now: float) -> TierReason | None:
    missing = find_missing_capability(view, demands)
    if missing is Obstacle.CONTEXT_TOO_SHORT:
        return TierReason.CONTEXT
    if missing in _INCAPABLE:
        return TierReason.CAPABILITY
    return TierReason.HEALTH if find_obstacle(view, demands, now) in _OUT else None


def _longest(route: ServedRoute) -> int | None:
    return max([view.context_tokens or 0 for view in route.fleet.views], default=None)


def _decide(
    arrival: Arrival, tiers: ServedTiers, place: int, reason: TierReason, score: float | None
) -> TierDecision:
    policy, asked = tiers.policy, arrival.route.route
    return TierDecision(
        requested_route_id=asked.id,
        requested_route=asked.name,
        tier=tiers.names[place],
        reason=reason.value,
        score=score,
        charge_mode=policy.charge,
        saving_share=policy.saving_share,
        counterfactual_route_id=tiers.routes[-1].route.id,
    )


def _log_failure(arrival: Arrival, error: Exception) -> None:
    """Say that something of ours is broken, without a word of the prompt."""
    _LOG.error("tiers of %s: %s", arrival.route.route.name, type(error).__name__)
