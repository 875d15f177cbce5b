"""The Snapshot: all that a data-plane worker knows of the catalog, as plain versioned data.

The control plane builds it after commit and publishes it; a worker holds one, swaps it whole and
keeps the last good one. A worker that meets another ``schema_version`` keeps what it has.
"""

from __future__ import annotations

import msgspec

SCHEMA_VERSION = 1


class ApiKeyEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ApiKey as the data plane sees it; found by the SHA-256 of its secret (hex)."""

    id: str
    project_id: str
    organization_id: str
    price_book_id: str
    expires_at_us: int | None = None  # checked at use, never at publication
    is_revoked: bool = False
    is_blocked: bool = False
    allowed_routes: tuple[str, ...] | None = None  # public names; None: every route, (): none


class Replica(msgspec.Struct, frozen=True, omit_defaults=True):
    """One running server of a deployment."""

    id: str
    base_url: str  # scheme and authority and any prefix, without "/v1"
    secret: str | None = None  # bearer token that the engine asks for


class Deployment(msgspec.Struct, frozen=True, omit_defaults=True):
    """One model, version and configuration, on one or more replicas."""

    id: str
    name: str
    engine_model: str  # the name that its engines know
    replicas: tuple[Replica, ...] = ()


class Route(msgspec.Struct, frozen=True, omit_defaults=True):
    """The public model name and where it leads."""

    id: str
    name: str
    deployment_id: str
    created_at_us: int = 0


class PriceEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One dated price of a route in a price book; decimal strings, per million tokens."""

    id: str
    price_book_id: str
    route_id: str
    effective_at_us: int
    currency: str
    input_per_million: str
    output_per_million: str
    cached_input_per_million: str | None = None  # None: cached input costs what input costs


class Snapshot(msgspec.Struct, frozen=True):
    """Everything at once, of one version.

    Its own fields are always written out, ``schema_version`` above all: left out as a default, a
    later version would read as ours.
    """

    version: int  # grows with every committed change
    published_at_us: int
    keys: dict[str, ApiKeyEntry] = {}
    routes: dict[str, Route] = {}  # by public name
    deployments: dict[str, Deployment] = {}  # by id
    prices: tuple[PriceEntry, ...] = ()
    schema_version: int = SCHEMA_VERSION
