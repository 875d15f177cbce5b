"""The Snapshot made ready for the request path: every name resolved once, at the swap."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import quote

from backends.http_pool import Endpoint
from billing.pricing.integer_charge import ChargeTimeline, IntegerCharge
from gateway.dataplane.fair_queue import FairQueue, share_of_capacity
from gateway.dataplane.http.head import HeaderLines, header_lines
from gateway.dataplane.limits.plan_index import PlanIndex
from gateway.dataplane.stream_editor import ModelRename
from gateway.snapshot.model import ApiKeyEntry, Deployment, PriceEntry, Replica, Route, Snapshot

_PATHS = {"chat.completions": "/v1/chat/completions", "completions": "/v1/completions"}
_HEADER_SAFE = " !#$&'()*+,/:;=?@[]"

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedReplica:
    """A replica with its connections."""

    id: str
    endpoint: Endpoint
    heads: dict[str, bytes]  # by endpoint name: a request's head but for its own three lines
    decision_lines: HeaderLines  # what an answer from here says of route, deployment and replica

    @property
    def in_flight(self) -> int:
        """How many of our requests it serves now."""
        return self.endpoint.in_flight


@dataclass(frozen=True, slots=True)
class ServedRoute:
    """A route with all that serving it needs."""

    route: Route
    deployment_id: str
    deployment: str  # its name
    engine_model: str
    rename: ModelRename | None  # None: engine and client use one name
    replicas: tuple[ServedReplica, ...]
    queue: FairQueue | None  # of its deployment; None: any number of requests run at a time
    charges: dict[str, ChargeTimeline]  # by price book id
    decision_lines: HeaderLines  # names percent-encoded where a header cannot carry them

    def find_price(self, price_book_id: str, at_us: int) -> IntegerCharge | None:
        """Return the price of this route that holds at ``at_us`` in a price book."""
        timeline = self.charges.get(price_book_id)
        return None if timeline is None else timeline.find_at(at_us)


@dataclass(frozen=True, slots=True)
class ServingTable:
    """What one Snapshot serves."""

    version: int
    keys: dict[bytes, ApiKeyEntry]  # by SHA-256 of the secret
    known_callers: dict[bytes, ApiKeyEntry]  # by a whole authorization header, once it was found
    routes: dict[str, ServedRoute]  # by public name
    plans: PlanIndex


class EndpointRegistry:
    """Keeps one Endpoint per engine address, so that connections outlive a Snapshot."""

    def __init__(self, make: Callable[[Replica], Endpoint]) -> None:
        self._make = make
        self._endpoints: dict[tuple[str, str | None], Endpoint] = {}

    def get(self, replica: Replica) -> Endpoint:
        """Return the replica's endpoint. Raises ValueError for an address that is no URL."""
        address = (replica.base_url, replica.secret)
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            endpoint = self._endpoints[address] = self._make(replica)
        return endpoint

    def keep_only(self, replicas: list[Replica]) -> None:
        """Close the idle connections of addresses that are no longer served."""
        wanted = {(replica.base_url, replica.secret) for replica in replicas}
        for address in self._endpoints.keys() - wanted:
            self._endpoints.pop(address).close()


class QueueRegistry:
    """Keeps one queue per deployment, so that who waits outlives a Snapshot."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, workers: int, index: int) -> None:
        """``index``: which of ``workers`` we are; each has its share of a deployment's capacity."""
        self._loop = loop
        self._workers = workers
        self._index = index
        self._queues: dict[str, FairQueue] = {}

    def find(self, deployment: Deployment) -> FairQueue | None:
        """Return the deployment's queue with its present capacity; None if it has no bound."""
        each = deployment.max_in_flight
        total = None if each is None else max(each * len(deployment.replicas), 1)
        capacity = share_of_capacity(total, self._workers, self._index)
        queue = self._queues.get(deployment.id)
        if queue is None:
            if capacity is None:
                return None
            queue = self._queues[deployment.id] = FairQueue(self._loop, capacity)
        elif queue.capacity != capacity:
            queue.set_capacity(capacity)  # without a bound: whoever waits is let in
        return None if capacity is None else queue


def build_serving_table(
    snapshot: Snapshot, endpoints: EndpointRegistry, queues: QueueRegistry
) -> ServingTable:
    """Resolve ``snapshot``. A replica with a bad address is left out and logged."""
    charges = _charge_timelines(snapshot.prices)
    routes: dict[str, ServedRoute] = {}
    for name, route in snapshot.routes.items():
        deployment = snapshot.deployments.get(route.deployment_id)
        if deployment is None:
            _LOG.warning("snapshot: route %s names no known deployment; left out", name)
            continue
        is_same_name = deployment.engine_model == name
        decision_lines = header_lines(
            [
                ("x-forebay-route", quote(name, safe=_HEADER_SAFE)),
                ("x-forebay-deployment", quote(deployment.name, safe=_HEADER_SAFE)),
            ]
        )
        routes[name] = ServedRoute(
            route=route,
            deployment_id=deployment.id,
            deployment=deployment.name,
            engine_model=deployment.engine_model,
            rename=None if is_same_name else ModelRename(deployment.engine_model, name),
            replicas=_serve_replicas(deployment.replicas, endpoints, decision_lines),
            queue=queues.find(deployment),
            charges=charges.get(route.id, {}),
            decision_lines=decision_lines,
        )
    endpoints.keep_only([r for d in snapshot.deployments.values() for r in d.replicas])
    keys = {bytes.fromhex(digest): key for digest, key in snapshot.keys.items()}
    return ServingTable(snapshot.version, keys, {}, routes, PlanIndex(snapshot))


def _serve_replicas(
    replicas: tuple[Replica, ...], endpoints: EndpointRegistry, decision_lines: HeaderLines
) -> tuple[ServedReplica, ...]:
    served = []
    for replica in replicas:
        try:
            endpoint = endpoints.get(replica)
            heads = {name: _request_head(endpoint, path) for name, path in _PATHS.items()}
            lines = decision_lines + header_lines([("x-forebay-replica", replica.id)])
            served.append(ServedReplica(replica.id, endpoint, heads, lines))
        except ValueError as error:
            _LOG.warning("snapshot: replica %s left out: %s", replica.id, error)
    return tuple(served)


def _request_head(endpoint: Endpoint, path: str) -> bytes:
    return b"POST %b%b HTTP/1.1\r\n%baccept-encoding: identity\r\n%b" % (
        endpoint.prefix.encode(),
        path.encode(),
        endpoint.request_headers,
        b"content-type: application/json\r\n",
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
