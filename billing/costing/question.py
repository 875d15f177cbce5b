"""From what a person tells of a capacity to the question that the report answers. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from billing.costing.crossover import CrossoverQuestion
from billing.costing.dedicated import DedicatedTerms
from billing.costing.errors import CostingError
from billing.costing.hourly_profile import HourlyProfile
from billing.costing.measured_capacity import (
    CapacityProfile,
    LatencyTarget,
    TargetMissedError,
    choose_capacity,
)
from billing.costing.replica_capacity import (
    ReplicaCapacity,
    capacity_of_rate,
    capacity_of_rates,
)
from billing.costing.route_prices import PricedLoad


@dataclass(frozen=True, slots=True)
class ToldCapacity:
    """The capacity of a replica, told in just one way; a latency target needs the measured one."""

    rate: Decimal | None = None  # tokens a second, input and output together
    input_rate: Decimal | None = None  # of a replica that only reads
    output_rate: Decimal | None = None  # of a replica that only writes
    measured: CapacityProfile | None = None
    target: LatencyTarget = field(default_factory=LatencyTarget)

    def check(self) -> None:
        """Raise :class:`CostingError` unless it is told in just one way."""
        has_rates = self.input_rate is not None or self.output_rate is not None
        told = [self.rate is not None, has_rates, self.measured is not None]
        if sum(told) != 1 or (has_rates and None in (self.input_rate, self.output_rate)):
            raise CostingError(
                "tell the capacity of a replica in one way: tokens a second, or both input and "
                "output tokens a second, or a measured profile"
            )
        if self.target.limits and self.measured is None:
            raise CostingError("a latency target needs a measured profile")


def make_question(load: PricedLoad, terms: DedicatedTerms, told: ToldCapacity) -> CrossoverQuestion:
    """Return the question about one profile. Raises :class:`CostingError`."""
    told.check()
    capacity, fault = None, None
    try:
        capacity = _find_capacity(load.profile, terms, told)
    except TargetMissedError as missed:
        fault = str(missed)
    return CrossoverQuestion(
        load.profile, load.prices, terms, capacity, fault=fault, notes=load.notes
    )


def _find_capacity(
    profile: HourlyProfile, terms: DedicatedTerms, told: ToldCapacity
) -> ReplicaCapacity:
    measured = told.measured
    if measured is not None:
        if measured.gpus != terms.gpus_per_replica:
            raise CostingError(
                f"{measured.name} was measured on {measured.gpus} GPUs, not on "
                f"{terms.gpus_per_replica}: say so"
            )
        return choose_capacity(measured, told.target, profile.tokens)
    if told.input_rate is not None and told.output_rate is not None:
        return capacity_of_rates(
            input_tokens_per_second=told.input_rate, output_tokens_per_second=told.output_rate
        )
    return capacity_of_rate(told.rate or Decimal(0))
