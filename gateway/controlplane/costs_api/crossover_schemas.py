"""What is asked of the crossover report. Amounts and rates travel as strings or whole numbers."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from billing.costing.dedicated import DedicatedTerms, Scaling
from billing.costing.errors import CostingError
from billing.costing.measured_capacity import (
    CapacityProfile,
    LatencyTarget,
    read_capacity_profile,
)
from billing.costing.price_list import ListPrice
from billing.costing.question import ToldCapacity
from billing.money import check_currency
from gateway.controlplane.money_fields import MoneyAmount
from gateway.controlplane.text_fields import Name
from gateway.controlplane.time_fields import Moment

MAX_PRICES = 50
Count = Annotated[int, Field(strict=True, ge=0, le=10_000)]
Seconds = Annotated[int, Field(strict=True, ge=0, le=7 * 86_400)]


class EnteredPrice(BaseModel):
    """What an outside provider asks per million tokens; ``cached_input…`` null: as input."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    input_per_million: MoneyAmount
    cached_input_per_million: MoneyAmount | None = None
    output_per_million: MoneyAmount


class CapacityRequest(BaseModel):
    """What one replica can carry, in one of three ways; the measured one as it is (``profile``), or
    by the name under which it is stored (``stored_profile``)."""

    model_config = ConfigDict(extra="forbid")

    tokens_per_second: MoneyAmount | None = None
    input_tokens_per_second: MoneyAmount | None = None
    output_tokens_per_second: MoneyAmount | None = None
    profile: dict[str, Any] | None = None
    stored_profile: Name | None = None


class LatencyTargetRequest(BaseModel):
    """The longest times that are accepted, in milliseconds, at one percentile."""

    model_config = ConfigDict(extra="forbid")

    ttft_ms: MoneyAmount | None = None
    tpot_ms: MoneyAmount | None = None
    e2e_ms: MoneyAmount | None = None
    percentile: Literal["p50", "p95", "p99"] = "p95"


class CrossoverRequest(BaseModel):
    """The question. Without ``prices`` and ``price_book``, serverless costs what was charged.

    Without ``route``, all together and each route. ``growth`` is a factor on the recorded load.
    Without ``cold_start_seconds`` replicas stand all the time.
    """

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    from_at: Annotated[Moment | None, Field(alias="from")] = None
    to_at: Annotated[Moment | None, Field(alias="to")] = None
    route: Name | None = None
    organization_id: Name | None = None
    project_id: Name | None = None
    gpu: Name | None = None  # told back only
    gpu_price_per_hour: MoneyAmount
    gpus_per_replica: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 1
    replicas: Annotated[int, Field(strict=True, ge=1, le=10_000)] | None = None
    max_replicas: Count | None = None
    spare_replicas: Count = 1
    committed_price_per_hour: MoneyAmount | None = None
    commitment_months: Count = 0
    cold_start_seconds: Seconds | None = None
    scale_down_delay_seconds: Seconds = 600
    max_utilization: MoneyAmount = Decimal("0.8")
    growth: MoneyAmount = Decimal(1)
    capacity: CapacityRequest
    latency_target: LatencyTargetRequest = Field(default_factory=LatencyTargetRequest)
    prices: Annotated[list[EnteredPrice], Field(max_length=MAX_PRICES)] = []
    currency: str = "USD"  # of the entered prices
    price_book: Name | None = None  # id or name: its prices of today

    def to_terms(self) -> DedicatedTerms:
        """Return what dedicated GPUs cost."""
        scaling = None
        if self.cold_start_seconds is not None:
            scaling = Scaling(self.cold_start_seconds, self.scale_down_delay_seconds)
        return DedicatedTerms(
            price_per_gpu_hour=self.gpu_price_per_hour,
            gpus_per_replica=self.gpus_per_replica,
            max_utilization=self.max_utilization,
            spare_replicas=self.spare_replicas,
            replicas=self.replicas,
            max_replicas=self.max_replicas,
            committed_price_per_gpu_hour=self.committed_price_per_hour,
            commitment_months=self.commitment_months,
            scaling=scaling,
        )

    def to_capacity(self, stored: CapacityProfile | None) -> ToldCapacity:
        """Return what a replica carries; ``stored`` is the profile that is named.

        Raises :class:`billing.costing.errors.CostingError`.
        """
        told, target = self.capacity, self.latency_target
        limits = {"ttft_ms": target.ttft_ms, "tpot_ms": target.tpot_ms, "e2e_ms": target.e2e_ms}
        measured = stored
        if told.profile is not None:
            if stored is not None:
                raise CostingError("give a profile, or the name of a stored one: not both")
            measured = read_capacity_profile(json.dumps(told.profile))
        return ToldCapacity(
            rate=told.tokens_per_second,
            input_rate=told.input_tokens_per_second,
            output_rate=told.output_tokens_per_second,
            measured=measured,
            target=LatencyTarget(
                {name: limit for name, limit in limits.items() if limit is not None},
                target.percentile,
            ),
        )

    def to_prices(self) -> list[ListPrice]:
        """Return the entered prices. Raises :class:`billing.money.InvalidAmountError`."""
        currency = check_currency(self.currency)
        return [
            ListPrice(
                name=price.name,
                currency=currency,
                input_per_million=price.input_per_million,
                cached_input_per_million=price.cached_input_per_million,
                output_per_million=price.output_per_million,
            )
            for price in self.prices
        ]
