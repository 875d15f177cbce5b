"""The Snapshot made ready for the request path: every name resolved once, at the swap."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import quote

from backends.http_pool import Endpoint
from billing.clock import from_epoch_us
from billing.pricing.price_book import PriceTerms, PriceTimeline
from gateway.dataplane.rsgi_types import HeaderList
from gateway.dataplane.stream_editor import ModelRename
from gateway.snapshot.model import ApiKeyEntry, PriceEntry, Replica, Route, Snapshot

_HEADER_SAFE = " !#$&'()*+,/:;=?@[]"

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedReplica:
    """A replica with its connections."""

    id: str
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class ServedRoute:
    """A route with all that serving it needs."""

    route: Route
    deployment_id: str
    deployment: str  # its name
    engine_model: str
    rename: ModelRename | None  # None: engine and client use one name
    replicas: tuple[ServedReplica, ...]
    prices: dict[str, PriceTimeline]  # by price book id
    decision_headers: HeaderList  # names percent-encoded where a header cannot carry them


@dataclass(frozen=True, slots=True)
class ServingTable:
    """What one Snapshot serves."""

    version: int
    keys: dict[bytes, ApiKeyEntry]  # by SHA-256 of the secret
    routes: dict[str, ServedRoute]  # by public name


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


def build_serving_table(snapshot: Snapshot, endpoints: EndpointRegistry) -> ServingTable:
    """Resolve ``snapshot``. A replica with a bad address is left out and logged."""
    prices = _price_timelines(snapshot.prices)
    routes: dict[str, ServedRoute] = {}
    for name, route in snapshot.routes.items():
        deployment = snapshot.deployments.get(route.deployment_id)
        if deployment is None:
            _LOG.warning("snapshot: route %s names no known deployment; left out", name)
            continue
        is_same_name = deployment.engine_model == name
        routes[name] = ServedRoute(
            route=route,
            deployment_id=deployment.id,
            deployment=deployment.name,
            engine_model=deployment.engine_model,
            rename=None if is_same_name else ModelRename(deployment.engine_model, name),
            replicas=_serve_replicas(deployment.replicas, endpoints),
            prices=prices.get(route.id, {}),
            decision_headers=[
                ("x-forebay-route", quote(name, safe=_HEADER_SAFE)),
                ("x-forebay-deployment", quote(deployment.name, safe=_HEADER_SAFE)),
            ],
        )
    endpoints.keep_only([r for d in snapshot.deployments.values() for r in d.replicas])
    keys = {bytes.fromhex(digest): key for digest, key in snapshot.keys.items()}
    return ServingTable(snapshot.version, keys, routes)


def _serve_replicas(
    replicas: tuple[Replica, ...], endpoints: EndpointRegistry
) -> tuple[ServedReplica, ...]:
    served = []
    for replica in replicas:
        try:
            served.append(ServedReplica(replica.id, endpoints.get(replica)))
        except ValueError as error:
            _LOG.warning("snapshot: replica %s left out: %s", replica.id, error)
    return tuple(served)


def _price_timelines(entries: tuple[PriceEntry, ...]) -> dict[str, dict[str, PriceTimeline]]:
    """Return the timelines by route id and price book id."""
    dated: dict[tuple[str, str], list[PriceTerms]] = {}
    for entry in entries:
        dated.setdefault((entry.route_id, entry.price_book_id), []).append(_price_terms(entry))
    timelines: dict[str, dict[str, PriceTimeline]] = {}
    for (route_id, book_id), terms in dated.items():
        timelines.setdefault(route_id, {})[book_id] = PriceTimeline(terms)
    return timelines


def _price_terms(entry: PriceEntry) -> PriceTerms:
    cached = entry.cached_input_per_million
    return PriceTerms(
        id=entry.id,
        currency=entry.currency,
        effective_at=from_epoch_us(entry.effective_at_us),
        input_per_million=Decimal(entry.input_per_million),
        cached_input_per_million=None if cached is None else Decimal(cached),
        output_per_million=Decimal(entry.output_per_million),
    )
