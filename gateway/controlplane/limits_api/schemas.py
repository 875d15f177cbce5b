"""Requests and answers about rate limits."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator
from pydantic_core.core_schema import ValidationInfo

from gateway.controlplane.text_fields import Name

LimitScope = Literal["key", "project", "organization", "route"]
Metric = Literal["requests", "input_tokens", "output_tokens", "total_tokens", "in_flight"]
_MAX_AMOUNT = 10**15


def _require(value: Any) -> Any:
    if value is None:
        raise ValueError("must not be null: 0 lets nothing through, and no limit is none at all")
    return value


Amount = Annotated[
    int, Field(strict=True, ge=0, le=_MAX_AMOUNT), BeforeValidator(_require)
]  # no floats: 1.5 requests are none


class LimitRequest(BaseModel):
    """At most ``amount`` of ``metric`` per ``per_seconds`` (0, or absent, with ``in_flight``).

    ``scope_id`` of a route may be its public name. With ``route`` (id or public name) only
    requests of that route count; with the scope ``route`` it is that route or absent.
    """

    model_config = ConfigDict(extra="forbid")

    scope: LimitScope
    scope_id: Name
    metric: Metric
    amount: Amount
    per_seconds: Annotated[int, Field(strict=True, validate_default=True)] = 0
    route: Name | None = None

    @field_validator("per_seconds")
    @classmethod
    def _span_fits_metric(cls, value: int, info: ValidationInfo) -> int:
        metric = info.data.get("metric")
        if metric == "in_flight":
            if value != 0:
                raise ValueError("must be 0 or absent: requests in flight have no span of time")
        elif value not in {1, 60, 3600, 86400}:
            raise ValueError("must be 1, 60, 3600 or 86400")
        return value


class LimitAnswer(BaseModel):
    """A limit."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    scope: str
    scope_id: str
    metric: str
    amount: int
    per_seconds: int
    route_id: str | None
    created_at: datetime
    updated_at: datetime
