"""Requests and answers about deployments, replicas, routes and engines."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

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


class DeploymentChange(_Request):
    """``max_in_flight`` per replica; null: any number, 0: none is served."""

    max_in_flight: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] | None


class QueueChange(_Request):
    """What is absent stays; what is null goes back to the default; a size of 0: none waits."""

    priority: Literal["interactive", "batch"] | None = None
    size: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] | None = None
    deadline_seconds: (
        Annotated[float, Field(strict=True, gt=0, le=3600, allow_inf_nan=False)] | None
    ) = None


class RouteChange(_Request):
    """How the route's requests wait while its deployment is saturated."""

    queue: QueueChange


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
    max_in_flight: int | None
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
    created_at: datetime

    @classmethod
    def of(cls, route: Route) -> Self:
        """Return the answer about ``route``, whose deployment is loaded."""
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
