"""What dedicated GPUs cost over recorded hours, replica by replica. Pure.

Replicas are thought of as levels on top of each other. The first carries each hour's work up to
what one replica can, the second what is beyond that, and so on; so each level has hours of its own
in which it is needed, a cost of standing there all the time, a cost of being started and stopped,
and a cost of sending its part to a serverless provider instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_DOWN, Decimal

from billing.costing.errors import CostingError
from billing.costing.wide_decimal import divide, round_up, wide

SECONDS_PER_HOUR = 3600
# Quotients are kept to so many decimals: sums of them are exact then.
_NOISE = Decimal(1).scaleb(-30)
MOST_REPLICAS = 5000  # a figure beyond it is a mistake in the capacity


@dataclass(frozen=True, slots=True)
class Scaling:
    """Replicas are started when they are needed and stopped when they are not."""

    cold_start_seconds: int  # paid, and serving nobody
    scale_down_delay_seconds: int  # paid after the last need


@dataclass(frozen=True, slots=True)
class DedicatedTerms:
    """What a replica costs and how far it may be loaded. Prices per GPU-hour."""

    price_per_gpu_hour: Decimal
    gpus_per_replica: int = 1
    # Of a replica's capacity, in the mean of an hour: the room is for the hour's own peaks.
    max_utilization: Decimal = Decimal("0.8")
    spare_replicas: int = 0  # of dedicated alone; 1: one may fail (N+1)
    # Just so many, spares left out, and no more of them in a hybrid; None: as carry the peak.
    replicas: int | None = None
    max_replicas: int | None = None  # that can be had, spares included; None: any number
    committed_price_per_gpu_hour: Decimal | None = None  # for what stands all the time
    commitment_months: int = 0
    scaling: Scaling | None = None  # None: replicas stand all the time

    def check(self) -> None:
        """Raise :class:`CostingError` for terms that make no sense."""
        counts = (self.spare_replicas, self.commitment_months, self.replicas or 0)
        if self.price_per_gpu_hour < 0 or min(counts) < 0 or self.gpus_per_replica < 1:
            raise CostingError("prices and counts are at least 0, and a replica has a GPU")
        if not 0 < self.max_utilization <= 1:
            raise CostingError("the highest utilization is above 0 and at most 1")

    @property
    def busy_seconds_per_hour(self) -> Decimal:
        """The work that one replica may be given in an hour."""
        return SECONDS_PER_HOUR * self.max_utilization

    @property
    def standing_price_per_hour(self) -> Decimal:
        """Of one replica that stands all the time."""
        price = self.price_per_gpu_hour
        if self.committed_price_per_gpu_hour is not None:
            price = min(price, self.committed_price_per_gpu_hour)
        return price * self.gpus_per_replica

    @property
    def started_price_per_hour(self) -> Decimal:
        """Of one replica that is started and stopped: no commitment covers it."""
        return self.price_per_gpu_hour * self.gpus_per_replica


@dataclass(frozen=True, slots=True)
class HourDemand:
    """One hour's work and what a serverless provider asks for it."""

    hour_at: datetime
    busy_seconds: Decimal  # of one replica
    serverless: Decimal


@dataclass(frozen=True, slots=True)
class Level:
    """The n-th replica over all hours: what it costs each hour, and what its part costs elsewhere."""

    number: int
    hours_needed: int
    is_started: bool  # cheaper started and stopped than standing
    cold_starts: int
    costs: tuple[Decimal, ...]  # by hour
    spill: tuple[Decimal, ...]  # by hour: the same work at the serverless price
    cost: Decimal  # over all hours
    spill_cost: Decimal  # over all hours


@wide
def count_replicas(busy_seconds: Decimal, terms: DedicatedTerms) -> int:
    """Return the replicas that an hour's work needs, spares left out."""
    needed = divide(busy_seconds, terms.busy_seconds_per_hour)
    if needed > MOST_REPLICAS:
        return int(needed) + 1
    # Work that fills replicas exactly must not need one more for the division's last digit.
    return round_up(needed.quantize(_NOISE))


@wide
def list_levels(demand: Sequence[HourDemand], terms: DedicatedTerms) -> list[Level]:
    """Return a level for each replica of the peak hour.

    Raises :class:`CostingError` where the peak needs more than :data:`MOST_REPLICAS`.
    """
    terms.check()
    counts = [count_replicas(hour.busy_seconds, terms) for hour in demand]
    peak = max(counts, default=0)
    if peak > MOST_REPLICAS:
        at = demand[counts.index(peak)].hour_at
        raise CostingError(f"{at.isoformat()} needs {peak} replicas: is the capacity right?")
    needed: list[list[int]] = [[] for _ in range(peak)]  # by level: the hours that need it
    for index, count in enumerate(counts):
        for hours in needed[:count]:
            hours.append(index)
    parts = [_full_part(hour, terms) for hour in demand]
    levels = []
    for number, hours in enumerate(needed, 1):
        spill = [Decimal(0)] * len(demand)
        for index in hours:
            # The top level takes what is left, so that an hour's parts add up to it exactly.
            is_top = counts[index] == number
            left = demand[index].serverless - (number - 1) * parts[index]
            spill[index] = left if is_top else parts[index]
        levels.append(_make_level(number, hours, spill, terms))
    return levels


def _full_part(hour: HourDemand, terms: DedicatedTerms) -> Decimal:
    """Return what a provider asks for as much of the hour's work as fills one replica."""
    if not hour.busy_seconds:
        return Decimal(0)
    part = divide(hour.serverless * terms.busy_seconds_per_hour, hour.busy_seconds)
    return part.quantize(_NOISE, rounding=ROUND_DOWN)


def _make_level(
    number: int, hours: list[int], spill: list[Decimal], terms: DedicatedTerms
) -> Level:
    standing = terms.standing_price_per_hour
    costs, cost = (standing,) * len(spill), standing * len(spill)
    cold_starts, is_started = 0, False
    if terms.scaling is not None:
        seconds, starts = _count_started_seconds(hours, len(spill), terms.scaling)
        # Hours are paid for few different times: each is priced once.
        prices = {
            paid: divide(terms.started_price_per_hour * paid, SECONDS_PER_HOUR).quantize(_NOISE)
            for paid in set(seconds)
        }
        started = sum((prices[paid] for paid in seconds if paid), Decimal(0))
        if started < cost:
            costs, cost = tuple(prices[paid] for paid in seconds), started
            cold_starts, is_started = starts, True
    return Level(
        number=number,
        hours_needed=len(hours),
        is_started=is_started,
        cold_starts=cold_starts,
        costs=costs,
        spill=tuple(spill),
        cost=cost,
        spill_cost=sum((spill[index] for index in hours), Decimal(0)),
    )


def _count_started_seconds(
    hours: list[int], total_hours: int, scaling: Scaling
) -> tuple[list[int], int]:
    """Return the seconds paid by hour, and the cold starts, of a replica started when needed.

    A start is paid ahead of the hour that needs it and counted to it; what is paid after the last
    need is counted to that hour. Between two needs that are close the replica just stays.
    """
    paid = [0] * total_hours
    starts = 0
    before: int | None = None
    for index in hours:
        paid[index] += SECONDS_PER_HOUR
        if before is None:
            paid[index] += scaling.cold_start_seconds
            starts += 1
        elif gap := (index - before - 1) * SECONDS_PER_HOUR:
            stays = scaling.scale_down_delay_seconds
            paid[index] += min(gap, stays + scaling.cold_start_seconds)
            starts += gap > stays
        before = index
    if before is not None:
        left = (total_hours - 1 - before) * SECONDS_PER_HOUR
        paid[before] += min(left, scaling.scale_down_delay_seconds)
    return paid, starts
