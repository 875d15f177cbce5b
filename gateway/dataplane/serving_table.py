"""The Snapshot made ready for the request path: every name resolved once, at the swap."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from decimal import Decimal

from billing.pricing.integer_charge import ChargeTimeline, IntegerCharge
from gateway.dataplane.fair_queue import FairQueue, share_of_capacity, share_of_places
from gateway.dataplane.fleet import Fleet, FleetRegistry
from gateway.dataplane.limits.plan_index import PlanIndex
from gateway.dataplane.served_route import ServedRoute, decision_lines_of, rename_of
from gateway.dataplane.served_tiers import FindPredictor, build_tiers
from gateway.snapshot.model import ApiKeyEntry, Deployment, PriceEntry, QueuePolicy, Snapshot

__all__ = ["QueueRegistry", "ServedRoute", "ServingTable", "build_serving_table"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServingTable:
    """What one Snapshot serves."""

    version: int
    keys: dict[bytes, ApiKeyEntry]  # by SHA-256 of the secret
    known_callers: dict[bytes, ApiKeyEntry]  # by a whole authorization header, once it was found
    routes: dict[str, ServedRoute]  # by public name
    fleets: dict[str, Fleet]  # by deployment: who has waited goes on with what is there by then
    plans: PlanIndex
    organization_weights: dict[str, float]  # in queues, by id; 1 where none is named


class QueueRegistry:
    """Keeps one queue per deployment, so that who waits outlives a Snapshot."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, workers: int, index: int) -> None:
        """``index``: which of ``workers`` we are; each has its share of capacities and places."""
        self._loop = loop
        self._workers = workers
        self._index = index
        self._queues: dict[str, FairQueue] = {}

    def set_share(self, workers: int, index: int) -> None:
        """Take another part of each capacity and size, from the next :meth:`find` on."""
        self._workers, self._index = workers, index

    def find(self, deployment: Deployment) -> FairQueue | None:
        """Return the deployment's queue with its present capacity; None if it has no bound."""
        each = deployment.max_in_flight or None  # 0: nobody waits for what never comes
        open_replicas = sum(not replica.is_draining for replica in deployment.replicas)
        total = None if each is None else max(each * open_replicas, 1)
        capacity = share_of_capacity(total, self._workers, self._index)
        queue = self._queues.get(deployment.id)
        if queue is None:
            if capacity is None:
                return None
            queue = self._queues[deployment.id] = FairQueue(self._loop, capacity)
        elif queue.capacity != capacity:
            queue.set_capacity(capacity)  # without a bound: whoever waits is let in
        return None if capacity is None else queue

    def use_weights(self, weights: dict[str, float]) -> None:
        """Take the weights of organizations, for those that wait already, too."""
        for queue in self._queues.values():
            queue.set_weights(weights)

    def share_of_places(self, policy: QueuePolicy) -> int:
        """Return how many requests of a route with this policy may wait here."""
        return share_of_places(policy.size, self._workers, self._index)


def build_serving_table(
    snapshot: Snapshot,
    fleets: FleetRegistry,
    queues: QueueRegistry,
    find_predictor: FindPredictor,
) -> ServingTable:
    """Resolve ``snapshot``. A replica with a bad address is left out and logged."""
    charges = _charge_timelines(snapshot.prices)
    served = {name: fleets.serve(one) for name, one in snapshot.deployments.items()}
    routes: dict[str, ServedRoute] = {}
    for name, route in snapshot.routes.items():
        deployment = snapshot.deployments.get(route.deployment_id)
        if deployment is None:
            _LOG.warning("snapshot: route %s names no known deployment; left out", name)
            continue
        routes[name] = ServedRoute(
            route=route,
            asked=route,
            deployment_id=deployment.id,
            deployment=deployment.name,
            engine_model=deployment.engine_model,
            rename=rename_of(deployment.engine_model, name),
            fleet=served[deployment.id],
            queue=queues.find(deployment),
            charges=charges.get(route.id, {}),
            decision_lines=decision_lines_of(name, deployment.name),
            places=queues.share_of_places(route.queue),
        )
    queues.use_weights(snapshot.organization_weights)
    fleets.keep_only(list(snapshot.deployments.values()))
    routes |= {
        name: replace(route, fallbacks=_fallbacks_of(route, routes))
        for name, route in routes.items()
        if route.route.fallbacks
    }
    routes |= {
        name: replace(route, tiers=build_tiers(route, route.route.tiers, routes, find_predictor))
        for name, route in routes.items()
        if route.route.tiers is not None
    }
    keys = {bytes.fromhex(digest): key for digest, key in snapshot.keys.items()}
    return ServingTable(
        version=snapshot.version,
        keys=keys,
        known_callers={},
        routes=routes,
        fleets=served,
        plans=PlanIndex(snapshot),
        organization_weights=snapshot.organization_weights,
    )


def _fallbacks_of(route: ServedRoute, routes: dict[str, ServedRoute]) -> tuple[ServedRoute, ...]:
    """Return the routes that answer in ``route``'s place, in whose name they do."""
    name = route.route.name
    return tuple(
        replace(
            routes[other], asked=route.route, rename=rename_of(routes[other].engine_model, name)
        )
        for other in route.route.fallbacks
        if other in routes and other != name
    )


def _charge_timelines(entries: tuple[PriceEntry, ...]) -> dict[str, dict[str, ChargeTimeline]]:
    """Return the timelines by route id and price book id."""
    dated: dict[tuple[str, str], list[tuple[int, IntegerCharge]]] = {}
    for entry in entries:
        cached = entry.cached_input_per_million
        charge = IntegerCharge(
            currency=entry.currency,
            input_per_million=Decimal(entry.input_per_million),
            cached_input_per_million=None if cached is None else Decimal(cached),
            output_per_million=Decimal(entry.output_per_million),
        )
        key = (entry.route_id, entry.price_book_id)
        dated.setdefault(key, []).append((entry.effective_at_us, charge))
    timelines: dict[str, dict[str, ChargeTimeline]] = {}
    for (route_id, book_id), charges in dated.items():
        timelines.setdefault(route_id, {})[book_id] = ChargeTimeline(charges)
    return timelines
