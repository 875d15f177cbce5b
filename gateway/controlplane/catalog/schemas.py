"""Requests and answers about deployments, replicas, routes and engines."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

from gateway.controlplane.catalog.engine_address import normalize_engine_address
from gateway.controlplane.catalog.models import Deployment, Replica, Route
from gateway.controlplane.text_fields import ModelName, Name, check_no_space, check_visible

EngineAddress = Annotated[
    str,
    StringConstraints(min_length=1, max_length=2000),
    AfterValidator(normalize_engine_address),
]
EngineSecret = Annotated[
    str,
    StringConstraints(min_length=1, max_length=2000, pattern=r"^[\x21-\x7e]+$"),
    AfterValidator(check_visible),
    AfterValidator(check_no_space),
]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewDeploymentRequest(_Request):
    """``engine_model`` is the name that the engines know the model by."""

    name: Name
    engine_model: ModelName


class NewReplicaRequest(_Request):
    """``secret`` is the bearer token that the engine asks for."""

    base_url: EngineAddress
    secret: EngineSecret | None = None


class NewRouteRequest(_Request):
    """``deployment`` is an id or a name."""

    name: ModelName
    deployment: Name


class ReplicaAnswer(BaseModel):
    """A replica, without its secret."""

    id: str
    deployment_id: str
    base_url: str
    has_secret: bool
    created_at: datetime

    @classmethod
    def of(cls, replica: Replica) -> Self:
        """Return the answer about ``replica``."""
        return cls(
            id=replica.id,
            deployment_id=replica.deployment_id,
            base_url=replica.base_url,
            has_secret=replica.secret is not None,
            created_at=replica.created_at,
        )


class DeploymentAnswer(BaseModel):
    """A deployment with its replicas."""

    id: str
    name: str
    engine_model: str
    created_at: datetime
    replicas: list[ReplicaAnswer]

    @classmethod
    def of(cls, deployment: Deployment) -> Self:
        """Return the answer about ``deployment``, whose replicas are loaded."""
        return cls(
            id=deployment.id,
            name=deployment.name,
            engine_model=deployment.engine_model,
            created_at=deployment.created_at,
            replicas=[ReplicaAnswer.of(replica) for replica in deployment.replicas],
        )


class RouteAnswer(BaseModel):
    """A public model name and where it leads."""

    id: str
    name: str
    deployment_id: str
    deployment: str
    created_at: datetime

    @classmethod
    def of(cls, route: Route) -> Self:
        """Return the answer about ``route``, whose deployment is loaded."""
        return cls(
            id=route.id,
            name=route.name,
            deployment_id=route.deployment.id,
            deployment=route.deployment.name,
            created_at=route.created_at,
        )


class EngineAnswer(BaseModel):
    """What a probe just made found out about one replica.

    ``latency_ms`` is the round trip of ``/health``; the figures are null where the engine does not
    publish them; ``kv_cache_usage`` is a fraction from 0 to 1.
    """

    model_config = ConfigDict(from_attributes=True)

    deployment: str
    engine_model: str
    replica_id: str
    base_url: str
    state: str
    latency_ms: float | None
    running: float | None
    waiting: float | None
    kv_cache_usage: float | None
    checked_at: datetime
    error: str | None
