"""The options of ``forebay report``, and the question that they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.costing_files import decimal_option, read_text, refusing
from gateway.cli.errors import CliError

if TYPE_CHECKING:
    from billing.costing.crossover import CrossoverQuestion
    from billing.costing.dedicated import DedicatedTerms
    from billing.costing.hourly_profile import HourlyProfile
    from billing.costing.measured_capacity import LatencyTarget
    from billing.costing.price_list import ListPrice
    from billing.costing.replica_capacity import ReplicaCapacity

ProfileOption = Annotated[
    Path, typer.Option("--profile", metavar="FILE", help="The load by hour: CSV or JSON.")
]
RouteOption = Annotated[str | None, typer.Option("--route", help="Only this route's hours.")]
GpuPriceOption = Annotated[
    Decimal, decimal_option("--gpu-price", metavar="AMOUNT", help="Per GPU-hour.")
]
GpusOption = Annotated[int, typer.Option("--gpus", min=1, help="GPUs of one replica.")]
ReplicasOption = Annotated[
    int | None, typer.Option("--replicas", min=1, help="Just so many. Default: the peak's need.")
]
MostOption = Annotated[
    int | None, typer.Option("--max-replicas", min=0, help="That can be had, spares included.")
]
SpareOption = Annotated[int, typer.Option("--spare", min=0, help="Spare replicas; 1: N+1.")]
CommittedOption = Annotated[
    Decimal | None,
    decimal_option(
        "--committed-price", metavar="AMOUNT", help="Per GPU-hour, for what stands all the time."
    ),
]
MonthsOption = Annotated[int, typer.Option("--commitment-months", min=0, help="How long.")]
ColdStartOption = Annotated[
    int | None,
    typer.Option(
        "--cold-start",
        min=0,
        metavar="SECONDS",
        help="Replicas are started and stopped, so slowly.",
    ),
]
DelayOption = Annotated[
    int,
    typer.Option("--scale-down-delay", min=0, metavar="SECONDS", help="Paid after the last need."),
]
UtilizationOption = Annotated[
    Decimal, decimal_option("--max-utilization", help="Of a replica's capacity, in an hour's mean.")
]
RateOption = Annotated[
    Decimal | None,
    decimal_option("--tokens-per-second", help="Of one replica, input and output together."),
]
InputRateOption = Annotated[
    Decimal | None,
    decimal_option("--input-tokens-per-second", help="Of a replica that only reads."),
]
OutputRateOption = Annotated[
    Decimal | None,
    decimal_option("--output-tokens-per-second", help="Of a replica that only writes."),
]
CapacityOption = Annotated[
    Path | None,
    typer.Option("--capacity", metavar="FILE", help="A measured capacity profile: JSON."),
]
TtftOption = Annotated[
    Decimal | None, decimal_option("--ttft-ms", help="Latency target; needs --capacity.")
]
TpotOption = Annotated[
    Decimal | None, decimal_option("--tpot-ms", help="Latency target; needs --capacity.")
]
E2eOption = Annotated[
    Decimal | None, decimal_option("--e2e-ms", help="Latency target; needs --capacity.")
]
PercentileOption = Annotated[
    str, typer.Option("--percentile", help="Of the latency targets: p50, p95 or p99.")
]


@dataclass(frozen=True, slots=True)
class CapacityWish:
    """How the capacity is told: exactly one of a rate, two rates and a measured profile."""

    rate: Decimal | None
    input_rate: Decimal | None
    output_rate: Decimal | None
    path: Path | None
    target: LatencyTarget

    def check(self) -> None:
        """Raise :class:`CliError` unless it is told in just one way."""
        has_rates = self.input_rate is not None or self.output_rate is not None
        told = [self.rate is not None, has_rates, self.path is not None]
        if sum(told) != 1 or (has_rates and None in (self.input_rate, self.output_rate)):
            raise CliError(
                "Tell the capacity of a replica in one way: --tokens-per-second, or "
                "--input-tokens-per-second with --output-tokens-per-second, or --capacity."
            )
        if self.target.limits and self.path is None:
            raise CliError("A latency target needs a measured profile (--capacity).")


def make_target(
    ttft: Decimal | None, tpot: Decimal | None, e2e: Decimal | None, percentile: str
) -> LatencyTarget:
    """Return the target. Raises :class:`CliError` for an unknown percentile."""
    from billing.costing.measured_capacity import PERCENTILES, LatencyTarget

    if percentile not in PERCENTILES:
        raise CliError(f"--percentile is one of {', '.join(PERCENTILES)}.")
    limits = {"ttft_ms": ttft, "tpot_ms": tpot, "e2e_ms": e2e}
    told = {name: limit for name, limit in limits.items() if limit is not None}
    return LatencyTarget(told, percentile)


def make_question(
    profile: HourlyProfile,
    prices: Sequence[ListPrice],
    terms: DedicatedTerms,
    wish: CapacityWish,
) -> CrossoverQuestion:
    """Return the question about one profile. Raises :class:`CliError`."""
    from billing.costing.crossover import CrossoverQuestion
    from billing.costing.measured_capacity import TargetMissedError

    wish.check()
    with refusing():
        try:
            capacity = _find_capacity(profile, terms, wish)
        except TargetMissedError as missed:
            return CrossoverQuestion(profile, tuple(prices), terms, None, str(missed))
    return CrossoverQuestion(profile, tuple(prices), terms, capacity)


def _find_capacity(
    profile: HourlyProfile, terms: DedicatedTerms, wish: CapacityWish
) -> ReplicaCapacity:
    from billing.costing.measured_capacity import choose_capacity, read_capacity_profile
    from billing.costing.replica_capacity import capacity_of_rate, capacity_of_rates

    if wish.path is not None:
        measured = read_capacity_profile(read_text(wish.path))
        if measured.gpus != terms.gpus_per_replica:
            raise CliError(
                f"{wish.path} was measured on {measured.gpus} GPUs: say --gpus {measured.gpus}."
            )
        return choose_capacity(measured, wish.target, profile.tokens)
    if wish.input_rate is not None and wish.output_rate is not None:
        return capacity_of_rates(
            input_tokens_per_second=wish.input_rate, output_tokens_per_second=wish.output_rate
        )
    return capacity_of_rate(wish.rate or Decimal(0))
