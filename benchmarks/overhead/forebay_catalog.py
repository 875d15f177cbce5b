"""The catalog that Forebay serves in the benchmark: one key, one route, one engine, one price."""

from __future__ import annotations

import hashlib
import time

from benchmarks.overhead.workload import MODEL
from billing.ids import new_id
from gateway.snapshot.model import (
    ApiKeyEntry,
    Budget,
    Deployment,
    PriceEntry,
    RateLimit,
    Replica,
    Route,
    Snapshot,
)

_NEVER_REACHED = 10**12


def build_snapshot(*, secret: str, engine_port: int, has_limits: bool) -> Snapshot:
    """Return a Snapshot in which ``secret`` may use the mock engine on ``engine_port``.

    ``has_limits``: limits that are never reached hold at three levels, and budgets at two.
    """
    now_us = time.time_ns() // 1000
    key = ApiKeyEntry(
        id=new_id("key"),
        project_id=new_id("proj"),
        organization_id=new_id("org"),
        price_book_id=new_id("pbk"),
        allowed_routes=(MODEL,),
    )
    deployment = Deployment(
        id=new_id("dep"),
        name=MODEL,
        engine_model=MODEL,
        replicas=(Replica(id=new_id("rep"), base_url=f"http://127.0.0.1:{engine_port}"),),
    )
    route = Route(id=new_id("rte"), name=MODEL, deployment_id=deployment.id, created_at_us=now_us)
    price = PriceEntry(
        id=new_id("prc"),
        price_book_id=key.price_book_id,
        route_id=route.id,
        effective_at_us=now_us,
        currency="USD",
        input_per_million="0.15",
        cached_input_per_million="0.075",
        output_per_million="0.60",
    )
    return Snapshot(
        version=1,
        published_at_us=now_us,
        keys={hashlib.sha256(secret.encode()).hexdigest(): key},
        routes={route.name: route},
        deployments={deployment.id: deployment},
        prices=(price,),
        limits=_limits(key) if has_limits else (),
        budgets=_budgets(key) if has_limits else (),
    )


def _limits(key: ApiKeyEntry) -> tuple[RateLimit, ...]:
    """Return limits on requests and tokens at each level, and on requests in flight."""
    levels = (
        ("key", key.id),
        ("project", key.project_id),
        ("organization", key.organization_id),
    )
    rates = tuple(
        RateLimit(new_id("lim"), scope, scope_id, metric, _NEVER_REACHED, 60)
        for scope, scope_id in levels
        for metric in ("requests", "total_tokens")
    )
    return (*rates, RateLimit(new_id("lim"), "key", key.id, "in_flight", _NEVER_REACHED))


def _budgets(key: ApiKeyEntry) -> tuple[Budget, ...]:
    """Return hard budgets of the key for a day and of the organization for a month."""
    return (
        Budget(new_id("bud"), "key", "key", key.id, "daily", "1000000", "USD"),
        Budget(new_id("bud"), "all", "organization", key.organization_id, "monthly", "9e6", "USD"),
    )
