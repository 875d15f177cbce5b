"""A route with all that serving it needs, and its tiers, which are such routes too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from gateway.dataplane.http.head import HeaderLines, header_lines
from gateway.dataplane.model_rename import ModelRename

if TYPE_CHECKING:
    from billing.pricing.integer_charge import ChargeTimeline, IntegerCharge
    from billing.usage.event import TierDecision
    from gateway.dataplane.fair_queue import FairQueue
    from gateway.dataplane.fleet import Fleet
    from gateway.snapshot.model import Route, TierPolicy
    from routing.complexity.predictor import Predictor

_HEADER_SAFE = " !#$&'()*+,/:;=?@[]"


@dataclass(frozen=True, slots=True)
class ServedRoute:
    """A route with all that serving it needs."""

    route: Route
    asked: Route  # whose name the client knows: itself, or the route that it answers for
    deployment_id: str
    deployment: str  # its name
    engine_model: str
    rename: ModelRename | None  # None: engine and client use one name
    fleet: Fleet
    queue: FairQueue | None  # of its deployment; None: any number of requests run at a time
    charges: dict[str, ChargeTimeline]  # by price book id
    decision_lines: HeaderLines  # names percent-encoded where a header cannot carry them
    places: int = 0  # this worker's part of the size of the route's queue
    fallbacks: tuple[ServedRoute, ...] = ()  # they rename to the name of this one
    tiers: ServedTiers | None = None  # that serve its requests in its name
    tier: TierPlace | None = None  # that it is, of another route

    def find_price(self, price_book_id: str, at_us: int) -> IntegerCharge | None:
        """Return the price of this route that holds at ``at_us`` in a price book."""
        timeline = self.charges.get(price_book_id)
        return None if timeline is None else timeline.find_at(at_us)


@dataclass(frozen=True, slots=True)
class TierPlace:
    """Which tier of which policy a served route is."""

    policy: TierPolicy
    name: str

    def take_over(self, chosen: TierDecision | None) -> TierDecision | None:
        """Return the decision of a request that falls back to this tier."""
        return None if chosen is None else msgspec.structs.replace(chosen, tier=self.name)


@dataclass(frozen=True, slots=True)
class ServedTiers:
    """The tiers of one route; each falls back to the others, the next above first."""

    policy: TierPolicy
    names: tuple[str, ...]
    routes: tuple[ServedRoute, ...]  # as ``names``
    default: int
    predictor: Predictor | None  # None: nothing is scored
    # Deployments whose engines have refused to tell log probabilities, since this Snapshot.
    without_logprobs: set[str] = field(default_factory=set)

    def find_route(self, route_id: str) -> ServedRoute | None:
        """Return what answers by the route with this id: a tier, or what all fall back to."""
        first = self.routes[0]
        routes = (*self.routes, *first.fallbacks)
        return next((one for one in routes if one.route.id == route_id), None)


def decision_lines_of(route: str, deployment: str, tier: str | None = None) -> HeaderLines:
    """Return what an answer says of where it comes from, percent-encoded where it must be."""
    lines = [
        ("x-forebay-route", quote(route, safe=_HEADER_SAFE)),
        ("x-forebay-deployment", quote(deployment, safe=_HEADER_SAFE)),
    ]
    if tier is not None:
        lines.append(("x-forebay-tier", quote(tier, safe=_HEADER_SAFE)))
    return header_lines(lines)


def rename_of(engine_model: str, name: str) -> ModelRename | None:
    """Return what puts ``name`` for the engine's own; None where they are one."""
    return None if engine_model == name else ModelRename(engine_model, name)
