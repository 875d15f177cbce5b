"""Requests about deployments, replicas and routes.

In a change what is absent stays as it is, and null goes back to the default.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
)

from gateway.controlplane.catalog.engine_address import normalize_engine_address
from gateway.controlplane.catalog.shadow_schemas import ShadowPolicyRequest
from gateway.controlplane.catalog.tier_schemas import TierPolicyRequest
from gateway.controlplane.text_fields import ModelName, Name, check_no_space, check_visible

MAX_FALLBACKS = 8
_MAX_LABELS = 32
_MAX_ADAPTERS = 200
_DAY_SECONDS = 86_400

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
Feature = Literal["chat", "completions", "embeddings", "tools", "vision", "json_schema"]
Weight = Annotated[float, Field(strict=True, ge=0, le=1_000_000, allow_inf_nan=False)]
Score = Annotated[float, Field(strict=True, ge=0, le=1000, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=_DAY_SECONDS, allow_inf_nan=False)]
SecondsOrNone = Annotated[float, Field(strict=True, ge=0, le=_DAY_SECONDS, allow_inf_nan=False)]
KeepWarmSeconds = Annotated[
    float, Field(strict=True, ge=0, le=366 * _DAY_SECONDS, allow_inf_nan=False)
]
Count = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
LabelText = Annotated[str, StringConstraints(max_length=200), AfterValidator(check_visible)]
LabelName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=63),
    AfterValidator(check_visible),
    AfterValidator(check_no_space),
]


def _check_no_repeats(value: list[str]) -> list[str]:
    if len(set(value)) != len(value):
        raise ValueError("names something twice")
    return value


def _require(value: Any) -> Any:
    if value is None:
        raise ValueError("must not be null")
    return value


Required = BeforeValidator(_require)  # may be absent from a change, never null
Labels = Annotated[dict[LabelName, LabelText], Field(max_length=_MAX_LABELS)]
Fallbacks = Annotated[
    list[ModelName], Field(max_length=MAX_FALLBACKS), AfterValidator(_check_no_repeats)
]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")

    def get_given(self) -> dict[str, Any]:
        """Return the fields that the client sent, also those that are null."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class CapabilitiesChange(_Request):
    """What the engines can do; null: whatever they say themselves, []: none."""

    context_tokens: Annotated[int, Field(strict=True, gt=0, le=1_000_000_000)] | None = None
    features: Annotated[list[Feature], AfterValidator(_check_no_repeats)] | None = None
    adapters: (
        Annotated[
            list[ModelName], Field(max_length=_MAX_ADAPTERS), AfterValidator(_check_no_repeats)
        ]
        | None
    ) = None


class PickChange(_Request):
    """What a choice among replicas weighs; 0 leaves a score out."""

    load: Score | None = None
    kv_room: Score | None = None
    prefix: Score | None = None
    latency: Score | None = None
    session: Score | None = None
    adapter: Score | None = None


class BreakerChange(_Request):
    """When a replica is left alone for a while."""

    failures: Annotated[int, Field(strict=True, ge=1, le=1000)] | None = None
    failure_share: Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)] | None = (
        None
    )
    open_seconds: (
        Annotated[float, Field(strict=True, gt=0, le=3600, allow_inf_nan=False)] | None
    ) = None


class SleepChange(_Request):
    """When the deployment gives its GPU back; ``keep_warm_seconds`` of null: never."""

    keep_warm_seconds: KeepWarmSeconds | None = None
    wake_limit_seconds: SecondsOrNone | None = None


class _DeploymentSettings(_Request):
    """``max_in_flight`` per replica; null: any number, 0: none is served."""

    max_in_flight: Count | None = None
    capabilities: CapabilitiesChange | None = None
    pick: PickChange | None = None
    breaker: BreakerChange | None = None
    sleep: SleepChange | None = None
    retry_share: Share | None = None
    first_token_timeout_seconds: Seconds | None = None
    idle_timeout_seconds: Seconds | None = None
    reply_timeout_seconds: Seconds | None = None


class NewDeploymentRequest(_DeploymentSettings):
    """``engine_model`` is the name that the engines know the model by."""

    name: Name
    engine_model: ModelName


class DeploymentChange(_DeploymentSettings):
    """Any of a deployment's fields."""

    name: Annotated[Name | None, Required] = None
    engine_model: Annotated[ModelName | None, Required] = None


class _ReplicaSettings(_Request):
    """``weight`` is the share beside the siblings, 0: only when no other can serve.

    ``secret`` is the bearer token that the engine asks for; ``labels`` replace those there were.
    """

    secret: EngineSecret | None = None
    weight: Weight | None = None
    is_draining: Annotated[bool, Field(strict=True)] | None = None
    labels: Labels | None = None
    agent_url: EngineAddress | None = None

    @field_validator("labels", mode="before")
    @classmethod
    def _check_labels(cls, value: Any) -> Any:
        # Said here: pydantic would name the label where we name the field.
        if isinstance(value, dict) and any(not isinstance(text, str) for text in value.values()):
            raise ValueError("must be an object of texts")
        return value


class NewReplicaRequest(_ReplicaSettings):
    """Where the engine is."""

    base_url: EngineAddress


class ReplicaChange(_ReplicaSettings):
    """Any of a replica's fields."""

    base_url: Annotated[EngineAddress | None, Required] = None


class QueueChange(_Request):
    """How requests wait while the deployment is saturated; a size of 0: none waits."""

    priority: Literal["interactive", "batch"] | None = None
    size: Count | None = None
    deadline_seconds: (
        Annotated[float, Field(strict=True, gt=0, le=3600, allow_inf_nan=False)] | None
    ) = None


class _RouteSettings(_Request):
    """``fallbacks`` are other routes, by id or public name, in the order in which they are tried.

    ``tiers`` replace those there were, the whole policy; null: the route's own deployment serves.
    ``shadow`` likewise, only with tiers; it goes with them.
    """

    queue: QueueChange | None = None
    fallbacks: Fallbacks | None = None
    tiers: TierPolicyRequest | None = None
    shadow: ShadowPolicyRequest | None = None


class NewRouteRequest(_RouteSettings):
    """``deployment`` is an id or a name."""

    name: ModelName
    deployment: Name


class RouteChange(_RouteSettings):
    """Any of a route's fields but its name, which callers and API keys know it by."""

    deployment: Annotated[Name | None, Required] = None
