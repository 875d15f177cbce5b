"""Building the Snapshot from the database, all of it as of one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from billing.budgets import credit_rule
from billing.budgets import repository as budgets
from billing.budgets.models import Budget
from billing.budgets.window import window_at
from billing.clock import from_epoch_us, to_epoch_us
from billing.money import ZERO, format_amount
from billing.pricing.models import Price
from billing.pricing.repository import list_price_books, list_price_history
from gateway.controlplane.catalog import repository as catalog
from gateway.controlplane.catalog.models import Deployment, Replica, Route
from gateway.controlplane.changes import read_version
from gateway.controlplane.classifiers_api import repository as classifiers
from gateway.controlplane.database import ReadSession
from gateway.controlplane.identity import repository as identity
from gateway.controlplane.identity.repository import SnapshotKey
from gateway.controlplane.limits_api import repository as limits
from gateway.controlplane.limits_api.models import RateLimit
from gateway.snapshot import model

# How long a key that ended is still known, so that its holder reads "revoked", not "unknown".
DEAD_KEY_RETENTION = timedelta(days=30)


async def build_snapshot(session: ReadSession, *, now: datetime) -> model.Snapshot:
    """Return the Snapshot of the session's moment; the session must be a consistent one."""
    version = await read_version(session)
    keys = await identity.list_snapshot_keys(session, dead_since=now - DEAD_KEY_RETENTION)
    routes = await catalog.list_routes(session)
    names = {route.id: route.name for route in routes}
    deployments = await catalog.list_deployments(session)
    currencies = {book.id: book.currency for book in await list_price_books(session)}
    prices = await list_price_history(session)
    return model.Snapshot(
        version=version,
        published_at_us=to_epoch_us(now),
        keys={found.key.secret_sha256.hex(): _key_entry(found) for found in keys},
        routes={route.name: _route_entry(route, names) for route in routes},
        deployments={deployment.id: _deployment_entry(deployment) for deployment in deployments},
        prices=tuple(
            _price_entry(price, currencies[price.price_book_id])
            for price in choose_usable_prices(prices, now=now)
        ),
        limits=tuple(_limit_entry(limit) for limit in await limits.list_limits(session)),
        budgets=await _read_budgets(session, now),
        classifiers={
            one.name: model.ClassifierWeights(one.name, one.version, one.sha256, one.size_bytes)
            for one in await classifiers.list_current(session)
        },
        organization_weights={
            organization_id: float(weight)
            for organization_id, weight in (await identity.list_weights(session)).items()
        },
    )


def choose_usable_prices(newest_first: Iterable[Price], *, now: datetime) -> list[Price]:
    """Return the prices to come and, of every route in every book, the one that holds now."""
    chosen: list[Price] = []
    has_current: set[tuple[str, str]] = set()
    for price in newest_first:
        timeline = (price.price_book_id, price.route_id)
        if timeline in has_current:
            continue
        chosen.append(price)
        if price.effective_at <= now:
            has_current.add(timeline)
    return chosen


def _key_entry(found: SnapshotKey) -> model.ApiKeyEntry:
    key = found.key
    return model.ApiKeyEntry(
        id=key.id,
        project_id=key.project_id,
        organization_id=found.organization_id,
        price_book_id=found.price_book_id or "",  # no book: nothing has a price
        expires_at_us=None if key.expires_at is None else to_epoch_us(key.expires_at),
        is_revoked=key.revoked_at is not None,
        is_blocked=key.blocked_at is not None,
        allowed_routes=None if key.allowed_routes is None else tuple(key.allowed_routes),
        lineage_id=key.lineage_id,
    )


def _deployment_entry(deployment: Deployment) -> model.Deployment:
    capabilities = model.Capabilities(
        context_tokens=deployment.context_tokens,
        features=_frozen(deployment.features),
        adapters=_frozen(deployment.adapters),
    )
    sleep = _set_only(
        keep_warm_seconds=deployment.keep_warm_seconds,
        wake_limit_seconds=deployment.wake_limit_seconds,
    )
    return model.Deployment(
        id=deployment.id,
        name=deployment.name,
        engine_model=deployment.engine_model,
        replicas=tuple(_replica_entry(replica) for replica in deployment.replicas),
        max_in_flight=deployment.max_in_flight,
        capabilities=capabilities,
        # As the Snapshot's reader would take it: a field that a later release adds is no failure.
        pick=msgspec.convert(deployment.pick or {}, model.PickPolicy),
        breaker=msgspec.convert(deployment.breaker or {}, model.BreakerPolicy),
        sleep=model.SleepPolicy(**sleep),
        **_set_only(
            retry_share=deployment.retry_share,
            first_token_timeout_seconds=deployment.first_token_timeout_seconds,
            idle_timeout_seconds=deployment.idle_timeout_seconds,
            reply_timeout_seconds=deployment.reply_timeout_seconds,
        ),
    )


def _replica_entry(replica: Replica) -> model.Replica:
    return model.Replica(
        id=replica.id,
        base_url=replica.base_url,
        secret=replica.secret,
        weight=replica.weight,
        is_draining=replica.is_draining,
        labels=replica.labels,
        agent_url=replica.agent_url,
    )


def _route_entry(route: Route, names: Mapping[str, str]) -> model.Route:
    queue = _set_only(
        priority=route.queue_priority,
        size=route.queue_size,
        deadline_seconds=route.queue_deadline_seconds,
    )
    return model.Route(
        id=route.id,
        name=route.name,
        deployment_id=route.deployment_id,
        created_at_us=to_epoch_us(route.created_at),
        queue=model.QueuePolicy(**queue),
        fallbacks=tuple(names[one] for one in route.fallbacks if one in names),
        tiers=None if route.tiers is None else _tier_policy(route.tiers, names),
        shadow=None if route.shadow is None else _shadow_policy(route.shadow, names),
    )


def _tier_policy(kept: Mapping[str, Any], names: Mapping[str, str]) -> model.TierPolicy:
    """Return the policy as the Snapshot's reader would take it, with its routes by public name."""
    tiers = [
        {"name": tier["name"], "route": names.get(tier["route_id"], "")} for tier in kept["tiers"]
    ]
    return msgspec.convert({**kept, "tiers": tiers}, model.TierPolicy)


def _shadow_policy(kept: Mapping[str, Any], names: Mapping[str, str]) -> model.ShadowPolicy:
    """Return the part of the policy that data planes go by."""
    judge = kept["judge_route_id"]
    named = None if judge is None else names.get(judge)
    return msgspec.convert({**kept, "judge_route": named}, model.ShadowPolicy)


def _frozen(values: list[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)


def _set_only(**fields: Any) -> dict[str, Any]:
    """Return the fields that were set; the model has the defaults of the others."""
    return {name: value for name, value in fields.items() if value is not None}


def _limit_entry(limit: RateLimit) -> model.RateLimit:
    return model.RateLimit(
        id=limit.id,
        scope=limit.scope,
        scope_id=limit.scope_id,
        metric=limit.metric,
        amount=limit.amount,
        per_seconds=limit.per_seconds,
        route_id=limit.route_id,
    )


async def _read_budgets(session: ReadSession, now: datetime) -> tuple[model.Budget, ...]:
    """Return budgets and credit rules, each with what was charged in its present window."""
    found = [(one.budget, one.time_zone) for one in await budgets.list_budgets(session)]
    found += [(rule, "UTC") for rule in await credit_rule.list_rules(session)]
    now_us = to_epoch_us(now)
    windows = [window_at(budget.window_kind, zone, now_us) for budget, zone in found]
    spent = await budgets.read_spent(
        session,
        [
            (budget.id, from_epoch_us(window.start_us))
            for (budget, _), window in zip(found, windows, strict=True)
        ],
    )
    return tuple(
        _budget_entry(budget, zone, spent.get(budget.id, ZERO), window.start_us)
        for (budget, zone), window in zip(found, windows, strict=True)
    )


def _budget_entry(
    budget: Budget, time_zone: str, spent: Decimal, spent_since_us: int
) -> model.Budget:
    return model.Budget(
        id=budget.id,
        name=budget.name,
        scope=budget.scope,
        scope_id=budget.scope_id,
        window=budget.window_kind,
        amount=format_amount(budget.amount),
        currency=budget.currency,
        time_zone=time_zone,
        is_hard=budget.is_hard,
        spent=format_amount(spent),
        spent_since_us=spent_since_us,
    )


def _price_entry(price: Price, currency: str) -> model.PriceEntry:
    cached = price.cached_input_per_million
    return model.PriceEntry(
        id=price.id,
        price_book_id=price.price_book_id,
        route_id=price.route_id,
        effective_at_us=to_epoch_us(price.effective_at),
        currency=currency,
        input_per_million=format_amount(price.input_per_million),
        output_per_million=format_amount(price.output_per_million),
        cached_input_per_million=None if cached is None else format_amount(cached),
    )
