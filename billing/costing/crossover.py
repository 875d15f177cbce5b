"""The report: serverless, dedicated or hybrid, over recorded hours, and where they cross. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from billing.costing.bands import DEFAULT_RESAMPLES, Bands, find_bands
from billing.costing.break_even import (
    FleetCrossing,
    UtilizationRow,
    find_fleet_crossing,
    list_utilizations,
)
from billing.costing.choices import Comparison, compare
from billing.costing.dedicated import DedicatedTerms, HourDemand
from billing.costing.demand import ServerlessCost, list_serverless_costs, make_demand
from billing.costing.errors import CostingError
from billing.costing.hourly_profile import HOURS_PER_DAY, HourlyProfile, list_days
from billing.costing.price_list import ListPrice
from billing.costing.replica_capacity import ReplicaCapacity
from billing.costing.wide_decimal import divide, wide

_MILLION = 10**6
_MOST_CROSSINGS = 20  # fleets whose crossing is told
_UTILIZATIONS = tuple(divide(step, 10) for step in range(1, 11))
DEFAULT_SEED = 20261130


@dataclass(frozen=True, slots=True)
class CrossoverQuestion:
    """What is asked. ``prices`` empty: serverless costs what the profile's hours were charged."""

    profile: HourlyProfile
    prices: tuple[ListPrice, ...]
    terms: DedicatedTerms
    capacity: ReplicaCapacity | None  # None: the latency target is missed, see ``fault``
    fault: str | None = None
    seed: int = DEFAULT_SEED
    resamples: int = DEFAULT_RESAMPLES
    notes: tuple[str, ...] = ()  # on the prices


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """The load that the answer is for."""

    hours: int
    requests: int
    tokens_per_day: Decimal
    tokens_per_second: Decimal  # mean, day and night
    cached_share: Decimal  # of input
    output_share: Decimal  # of all
    serverless_per_million: Decimal


@dataclass(frozen=True, slots=True)
class CrossoverReport:
    """The answer. Money in one currency; a month is 30 days like the recorded ones."""

    load: LoadFigures
    serverless_costs: tuple[ServerlessCost, ...]  # cheapest first; the first is compared
    comparison: Comparison
    bands: Bands | None  # None: too few whole days
    crossings: tuple[FleetCrossing, ...]  # by replicas, from one on
    utilizations: tuple[UtilizationRow, ...]  # of one replica, its fleet's spares paid too
    notes: tuple[str, ...]


@wide
def report_crossover(question: CrossoverQuestion) -> CrossoverReport:
    """Return the report. Raises :class:`CostingError` for a load or terms that make no sense."""
    profile = question.profile
    question.terms.check()
    tokens = profile.tokens
    if not tokens.total:
        raise CostingError("the profile has no tokens: there is nothing to compare")
    costs = list_serverless_costs(profile, question.prices)
    demand = _find_demand(question, costs[0])
    comparison = compare(demand, question.terms, fault=question.fault)
    load = _describe(profile, costs[0])
    crossings = _list_crossings(question, load, comparison)
    return CrossoverReport(
        load=load,
        serverless_costs=tuple(costs),
        comparison=comparison,
        bands=_find_bands(question, comparison),
        crossings=crossings,
        utilizations=_list_utilizations(question, load),
        notes=_list_notes(question, comparison),
    )


def _find_demand(question: CrossoverQuestion, cost: ServerlessCost) -> list[HourDemand]:
    capacity = question.capacity
    if capacity is None:
        # Nothing dedicated is priced; what a replica would be busy with does not matter.
        zero = Decimal(0)
        capacity = ReplicaCapacity(zero, zero, zero)
    return make_demand(question.profile, cost.price, capacity)


def _describe(profile: HourlyProfile, cost: ServerlessCost) -> LoadFigures:
    tokens = profile.tokens
    per_day = profile.per_day(tokens.total)
    return LoadFigures(
        hours=len(profile.hours),
        requests=profile.requests,
        tokens_per_day=per_day,
        tokens_per_second=divide(per_day, 86_400),
        cached_share=divide(tokens.cached_input, tokens.input) if tokens.input else Decimal(0),
        output_share=divide(tokens.output, tokens.total),
        serverless_per_million=divide(cost.total * _MILLION, tokens.total),
    )


def _list_crossings(
    question: CrossoverQuestion, load: LoadFigures, comparison: Comparison
) -> tuple[FleetCrossing, ...]:
    capacity, terms = question.capacity, question.terms
    if capacity is None:
        return ()
    rate = capacity.tokens_per_second(question.profile.tokens)
    most = min(max(1, comparison.fleets[-1].replicas), _MOST_CROSSINGS)
    found = (
        find_fleet_crossing(
            replicas=replicas,
            spare_replicas=terms.spare_replicas,
            cost_per_day=_fleet_cost_per_day(replicas, terms),
            price_per_million=load.serverless_per_million,
            replica_tokens_per_second=rate,
            tokens_per_day=load.tokens_per_day,
            max_utilization=terms.max_utilization,
        )
        for replicas in range(1, most + 1)
    )
    return tuple(crossing for crossing in found if crossing is not None)


def _list_utilizations(
    question: CrossoverQuestion, load: LoadFigures
) -> tuple[UtilizationRow, ...]:
    if question.capacity is None:
        return ()
    rows = list_utilizations(
        utilizations=_UTILIZATIONS,
        cost_per_day=_fleet_cost_per_day(1, question.terms),
        price_per_million=load.serverless_per_million,
        capacity_tokens_per_second=question.capacity.tokens_per_second(question.profile.tokens),
    )
    return tuple(rows)


def _fleet_cost_per_day(replicas: int, terms: DedicatedTerms) -> Decimal:
    """Return what a day of so many replicas and their spares costs."""
    return (replicas + terms.spare_replicas) * terms.standing_price_per_hour * HOURS_PER_DAY


def _find_bands(question: CrossoverQuestion, comparison: Comparison) -> Bands | None:
    costs: dict[str, Sequence[Decimal]] = {
        choice.kind: choice.hourly_costs
        for choice in comparison.choices
        if choice.hourly_costs is not None
    }
    return find_bands(
        costs,
        list_days(question.profile),
        best=comparison.best,
        against="serverless",
        seed=question.seed,
        resamples=question.resamples,
    )


def _list_notes(question: CrossoverQuestion, comparison: Comparison) -> tuple[str, ...]:
    terms, notes = question.terms, list(question.notes)
    notes += question.capacity.notes if question.capacity else ()
    if len(list_days(question.profile)) < 7:
        notes.append("less than a week was recorded: weekdays and weekends are not both in it")
    starts = max(choice.cold_starts for choice in comparison.choices)
    if starts and terms.scaling is not None:
        notes.append(
            f"replicas are taken to start {terms.scaling.cold_start_seconds} s ahead of the hour "
            f"that needs them ({starts} starts); started late, requests wait or spill as long"
        )
    if terms.committed_price_per_gpu_hour is not None and terms.commitment_months:
        notes.append(_describe_commitment(terms, comparison))
    return tuple(notes)


def _describe_commitment(terms: DedicatedTerms, comparison: Comparison) -> str:
    best = comparison.get(comparison.best)
    standing = best.replicas - best.started_replicas + best.spare_replicas
    month = standing * terms.standing_price_per_hour * 30 * HOURS_PER_DAY
    whole = format(month * terms.commitment_months, ".2f")
    who = "replica that stands" if standing == 1 else "replicas that stand"
    return (
        f"the commitment is {terms.commitment_months} months: {whole} in all for the "
        f"{standing} {who} all the time, used or not"
    )
