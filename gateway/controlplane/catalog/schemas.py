"""Answers about deployments, replicas, routes and engines."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Self

from pydantic import BaseModel, ConfigDict

from gateway.controlplane.catalog.models import Deployment, Replica, Route
from gateway.controlplane.catalog.shadow_schemas import ShadowPolicyAnswer
from gateway.controlplane.catalog.tier_schemas import TierPolicyAnswer


class ReplicaAnswer(BaseModel):
    """A replica, without its secret."""

    id: str
    deployment_id: str
    base_url: str
    has_secret: bool
    weight: float
    is_draining: bool
    labels: dict[str, str]
    agent_url: str | None
    created_at: datetime

    @classmethod
    def of(cls, replica: Replica) -> Self:
        """Return the answer about ``replica``."""
        return cls(
            id=replica.id,
            deployment_id=replica.deployment_id,
            base_url=replica.base_url,
            has_secret=replica.secret is not None,
            weight=replica.weight,
            is_draining=replica.is_draining,
            labels=replica.labels,
            agent_url=replica.agent_url,
            created_at=replica.created_at,
        )


class CapabilitiesAnswer(BaseModel):
    """What the engines can do, as it was set; null: whatever they say themselves."""

    context_tokens: int | None
    features: list[str] | None
    adapters: list[str] | None


class PickAnswer(BaseModel):
    """What a choice among replicas weighs, as it was set; null: the default."""

    load: float | None = None
    kv_room: float | None = None
    prefix: float | None = None
    latency: float | None = None
    session: float | None = None
    adapter: float | None = None


class BreakerAnswer(BaseModel):
    """When a replica is left alone, as it was set; null: the default."""

    failures: int | None = None
    failure_share: float | None = None
    open_seconds: float | None = None


class SleepAnswer(BaseModel):
    """When the deployment sleeps, as it was set; ``keep_warm_seconds`` of null: never."""

    keep_warm_seconds: float | None
    wake_limit_seconds: float | None


class DeploymentAnswer(BaseModel):
    """A deployment with its replicas; settings as they were set, null: the default."""

    id: str
    name: str
    engine_model: str
    max_in_flight: int | None
    capabilities: CapabilitiesAnswer
    pick: PickAnswer
    breaker: BreakerAnswer
    sleep: SleepAnswer
    retry_share: float | None
    first_token_timeout_seconds: float | None
    idle_timeout_seconds: float | None
    reply_timeout_seconds: float | None
    created_at: datetime
    replicas: list[ReplicaAnswer]

    @classmethod
    def of(cls, deployment: Deployment) -> Self:
        """Return the answer about ``deployment``, whose replicas are loaded."""
        return cls(
            id=deployment.id,
            name=deployment.name,
            engine_model=deployment.engine_model,
            max_in_flight=deployment.max_in_flight,
            capabilities=CapabilitiesAnswer(
                context_tokens=deployment.context_tokens,
                features=deployment.features,
                adapters=deployment.adapters,
            ),
            pick=PickAnswer.model_validate(deployment.pick or {}),
            breaker=BreakerAnswer.model_validate(deployment.breaker or {}),
            sleep=SleepAnswer(
                keep_warm_seconds=deployment.keep_warm_seconds,
                wake_limit_seconds=deployment.wake_limit_seconds,
            ),
            retry_share=deployment.retry_share,
            first_token_timeout_seconds=deployment.first_token_timeout_seconds,
            idle_timeout_seconds=deployment.idle_timeout_seconds,
            reply_timeout_seconds=deployment.reply_timeout_seconds,
            created_at=deployment.created_at,
            replicas=[ReplicaAnswer.of(replica) for replica in deployment.replicas],
        )


class QueueAnswer(BaseModel):
    """How requests wait, as it was set; null: the default."""

    priority: str | None
    size: int | None
    deadline_seconds: float | None


class RouteAnswer(BaseModel):
    """A public model name and where it leads."""

    id: str
    name: str
    deployment_id: str
    deployment: str
    queue: QueueAnswer
    fallbacks: list[str]
    tiers: TierPolicyAnswer | None  # null: it has none
    shadow: ShadowPolicyAnswer | None  # null: no request is looked at twice
    created_at: datetime

    @classmethod
    def of(cls, route: Route, names: Mapping[str, str]) -> Self:
        """Return the answer about ``route``, whose deployment is loaded.

        ``names`` are the public names of routes by their ids.
        """
        return cls(
            id=route.id,
            name=route.name,
            deployment_id=route.deployment.id,
            deployment=route.deployment.name,
            queue=QueueAnswer(
                priority=route.queue_priority,
                size=route.queue_size,
                deadline_seconds=route.queue_deadline_seconds,
            ),
            fallbacks=[names[one] for one in route.fallbacks if one in names],
            tiers=None if route.tiers is None else TierPolicyAnswer.of(route.tiers, names),
            shadow=None if route.shadow is None else ShadowPolicyAnswer.of(route.shadow, names),
            created_at=route.created_at,
        )


class EngineAnswer(BaseModel):
    """What a probe just made found out about one replica.

    ``latency_ms`` is the round trip of ``/health``; the figures are null where the engine does not
    publish them; ``kv_cache_usage`` and ``prefix_hit_share`` (since the engine's start) are
    fractions from 0 to 1. ``adapters`` are those that the engine knows, ``loaded_adapters`` those
    that it used last.
    """

    model_config = ConfigDict(from_attributes=True)

    deployment: str
    engine_model: str
    replica_id: str
    base_url: str
    state: str
    latency_ms: float | None
    running: int | None
    waiting: int | None
    kv_cache_usage: float | None
    kv_capacity_tokens: int | None
    prefix_hit_share: float | None
    context_tokens: int | None
    models: list[str]
    adapters: list[str]
    loaded_adapters: list[str]
    checked_at: datetime
    error: str | None
