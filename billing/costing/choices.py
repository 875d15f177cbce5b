"""Serverless, dedicated or both, over the same recorded hours: what each costs, which to take. Pure.

Hybrid is a dedicated base whose overflow goes to the serverless provider. It needs no spare: where a
replica fails, serverless stands in. With no replica it is serverless, with all of them dedicated
without a spare, so the best hybrid is never dearer than the better of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from billing.costing.dedicated import DedicatedTerms, HourDemand, Level, list_levels
from billing.costing.wide_decimal import divide, wide

Kind = Literal["serverless", "dedicated", "hybrid"]
_HOURS_PER_MONTH = 30 * 24


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to serve the load. ``cost`` and what follows from it None: it cannot be had, see ``reason``."""

    kind: Kind
    replicas: int  # at most at once, spares left out
    spare_replicas: int
    started_replicas: int  # of the replicas: those that are cheaper started and stopped
    cold_starts: int
    cost: Decimal | None  # over the profile's hours
    per_month: Decimal | None  # of 30 days like these
    hourly_costs: tuple[Decimal, ...] | None
    spilled_share: Decimal | None  # of the serverless bill: what still goes there
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class FleetRow:
    """A base of so many replicas that can be had: dedicated alone, if it carries the peak, and with
    spill."""

    replicas: int
    dedicated_per_month: Decimal | None
    hybrid_per_month: Decimal
    spilled_share: Decimal
    hours_over: int  # hours that need more replicas than these


@dataclass(frozen=True, slots=True)
class Comparison:
    """The three choices, the fleets behind them, and the one to take."""

    serverless: Choice
    dedicated: Choice
    hybrid: Choice
    best: Kind
    fleets: tuple[FleetRow, ...]
    peak_replicas: int  # that the busiest hour needs, spares left out
    peak_hour: HourDemand

    @property
    def choices(self) -> tuple[Choice, Choice, Choice]:
        """All three; where two cost the same the earlier is the simpler."""
        return (self.serverless, self.dedicated, self.hybrid)

    def get(self, kind: Kind) -> Choice:
        """Return the choice of this kind."""
        return next(choice for choice in self.choices if choice.kind == kind)

    @property
    @wide
    def saving_per_month(self) -> Decimal:
        """What the best saves against serverless."""
        ours, theirs = self.get(self.best).per_month, self.serverless.per_month
        return (theirs or Decimal(0)) - (ours or Decimal(0))


@wide
def compare(
    demand: Sequence[HourDemand], terms: DedicatedTerms, *, fault: str | None = None
) -> Comparison:
    """Return the comparison. ``fault`` tells why dedicated GPUs cannot serve this load at all (the
    latency target is missed): then only serverless is priced.

    Raises :class:`billing.costing.errors.CostingError`.
    """
    levels = [] if fault else list_levels(demand, terms)
    serverless = _serverless(demand)
    peak = max(demand, key=lambda hour: hour.busy_seconds)
    dedicated = _dedicated(demand, levels, terms, fault or _find_shortage(levels, peak, terms))
    hybrid = _best_hybrid(demand, levels, terms, fault)
    priced = [choice for choice in (serverless, dedicated, hybrid) if choice.cost is not None]
    best = min(priced, key=lambda choice: choice.cost or Decimal(0))
    return Comparison(
        serverless,
        dedicated,
        hybrid,
        best.kind,
        _list_fleets(demand, levels, terms, dedicated),
        len(levels),
        peak,
    )


def _serverless(demand: Sequence[HourDemand]) -> Choice:
    costs = tuple(hour.serverless for hour in demand)
    return _make_choice("serverless", [], 0, costs, spilled_share=Decimal(1))


def _find_shortage(levels: Sequence[Level], peak: HourDemand, terms: DedicatedTerms) -> str | None:
    """Return why the replicas that may be had do not carry the peak, None if they do."""
    what = "1 replica" if len(levels) == 1 else f"{len(levels)} replicas"
    at_peak = f"the hour {peak.hour_at:%Y-%m-%d %H:%M} UTC needs {what}"
    if terms.replicas is not None and terms.replicas < len(levels):
        return f"{at_peak}, {terms.replicas} cannot carry it"
    needed = max(len(levels), terms.replicas or 0) + terms.spare_replicas
    if terms.max_replicas is not None and terms.max_replicas < needed:
        return f"{at_peak} and {terms.spare_replicas} spare, {terms.max_replicas} can be had"
    return None


def _dedicated(
    demand: Sequence[HourDemand], levels: Sequence[Level], terms: DedicatedTerms, fault: str | None
) -> Choice:
    replicas = terms.replicas if terms.replicas is not None else len(levels)
    if fault is not None:
        return Choice(
            "dedicated", replicas, terms.spare_replicas, 0, 0, None, None, None, None, fault
        )
    idle = terms.spare_replicas if levels or replicas else 0
    if terms.scaling is None:  # else what no hour needs is never started
        idle += replicas - len(levels)
    beside = idle * terms.standing_price_per_hour
    costs = tuple(
        beside + sum((level.costs[index] for level in levels), Decimal(0))
        for index in range(len(demand))
    )
    return _make_choice(
        "dedicated",
        levels,
        terms.spare_replicas,
        costs,
        spilled_share=Decimal(0),
        replicas=replicas,
    )


def _best_hybrid(
    demand: Sequence[HourDemand], levels: Sequence[Level], terms: DedicatedTerms, fault: str | None
) -> Choice:
    if fault is not None:
        return Choice("hybrid", 0, 0, 0, 0, None, None, None, None, fault)
    most = _most_replicas(levels, terms)
    cost = best_cost = sum((level.spill_cost for level in levels), Decimal(0))
    base = 0
    for number in range(1, most + 1):
        cost += levels[number - 1].cost - levels[number - 1].spill_cost
        if cost < best_cost:
            best_cost, base = cost, number
    costs = tuple(
        sum((level.costs[index] for level in levels[:base]), Decimal(0))
        + sum((level.spill[index] for level in levels[base:]), Decimal(0))
        for index in range(len(demand))
    )
    return _make_choice(
        "hybrid", levels[:base], 0, costs, spilled_share=_spilled_share(levels, base)
    )


def _most_replicas(levels: Sequence[Level], terms: DedicatedTerms) -> int:
    """Return the most replicas that a base may have."""
    bounds = (len(levels), terms.max_replicas, terms.replicas)
    return min(bound for bound in bounds if bound is not None)


def _make_choice(
    kind: Kind,
    levels: Sequence[Level],
    spare: int,
    costs: tuple[Decimal, ...],
    *,
    spilled_share: Decimal,
    replicas: int | None = None,
) -> Choice:
    cost = sum(costs, Decimal(0))
    return Choice(
        kind=kind,
        replicas=len(levels) if replicas is None else replicas,
        spare_replicas=spare,
        started_replicas=sum(level.is_started for level in levels),
        cold_starts=sum(level.cold_starts for level in levels),
        cost=cost,
        per_month=divide(cost * _HOURS_PER_MONTH, len(costs)),
        hourly_costs=costs,
        spilled_share=spilled_share,
    )


def _spilled_share(levels: Sequence[Level], base: int) -> Decimal:
    whole = sum((level.spill_cost for level in levels), Decimal(0))
    spilled = sum((level.spill_cost for level in levels[base:]), Decimal(0))
    return divide(spilled, whole) if whole else Decimal(0)


def _list_fleets(
    demand: Sequence[HourDemand],
    levels: Sequence[Level],
    terms: DedicatedTerms,
    dedicated: Choice,
) -> tuple[FleetRow, ...]:
    whole = spilled = sum((level.spill_cost for level in levels), Decimal(0))
    standing = Decimal(0)
    rows = []
    for base in range(_most_replicas(levels, terms) + 1):
        if base:
            standing += levels[base - 1].cost
            spilled -= levels[base - 1].spill_cost
        rows.append(
            FleetRow(
                replicas=base,
                dedicated_per_month=dedicated.per_month if base == len(levels) else None,
                hybrid_per_month=_per_month(standing + spilled, len(demand)),
                spilled_share=divide(spilled, whole) if whole else Decimal(0),
                hours_over=levels[base].hours_needed if base < len(levels) else 0,
            )
        )
    return tuple(rows)


def _per_month(amount: Decimal, hours: int) -> Decimal:
    return divide(amount * _HOURS_PER_MONTH, hours)
