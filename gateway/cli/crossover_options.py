"""The options of ``forebay report``, and the question that they become."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.control_client import ControlClient
from gateway.cli.costing_files import decimal_option, read_text, refusing
from gateway.cli.errors import CliError
from gateway.cli.options import load

if TYPE_CHECKING:
    from billing.costing.measured_capacity import CapacityProfile, LatencyTarget
    from billing.costing.question import ToldCapacity

ProfileOption = Annotated[
    Path | None,
    typer.Option(
        "--profile", metavar="FILE", help="The load by hour: CSV or JSON. Default: the ledger's."
    ),
]
ByRouteOption = Annotated[
    bool, typer.Option("--by-route", help="A line for each route, and for all together.")
]
GrowthOption = Annotated[
    Decimal, decimal_option("--growth", metavar="FACTOR", help="Times the recorded load.")
]
PriceBookOption = Annotated[
    str | None,
    typer.Option("--price-book", help="Serverless at this book's prices of today (id or name)."),
]
RouteOption = Annotated[str | None, typer.Option("--route", help="Only this route's hours.")]
GpuPriceOption = Annotated[
    Decimal, decimal_option("--gpu-price", metavar="AMOUNT", help="Per GPU-hour.")
]
GpusOption = Annotated[int, typer.Option("--gpus", min=1, help="GPUs of one replica.")]
ReplicasOption = Annotated[
    int | None,
    typer.Option(
        "--replicas", min=1, help="Just so many; in a hybrid at most. Default: as needed."
    ),
]
MostOption = Annotated[
    int | None, typer.Option("--max-replicas", min=0, help="That can be had, spares included.")
]
SpareOption = Annotated[
    int, typer.Option("--spare", min=0, help="Spare replicas of dedicated alone; 1: N+1.")
]
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
StoredCapacityOption = Annotated[
    str | None,
    typer.Option("--stored-capacity", metavar="NAME", help="One that 'report capacity' keeps."),
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


def tell_capacity(
    rate: Decimal | None,
    input_rate: Decimal | None,
    output_rate: Decimal | None,
    measured: CapacityProfile | None,
    target: LatencyTarget,
) -> ToldCapacity:
    """Return the capacity. Raises :class:`CliError` unless it is told in just one way."""
    from billing.costing.question import ToldCapacity

    has_rates = input_rate is not None or output_rate is not None
    ways = [rate is not None, has_rates, measured is not None]
    if sum(ways) != 1 or (has_rates and None in (input_rate, output_rate)):
        raise CliError(
            "Tell the capacity of a replica in one way: --tokens-per-second, or "
            "--input-tokens-per-second with --output-tokens-per-second, or --capacity, or "
            "--stored-capacity."
        )
    if target.limits and measured is None:
        raise CliError("A latency target needs a measured profile (--capacity).")
    return ToldCapacity(rate, input_rate, output_rate, measured, target)


def read_capacity(
    path: Path | None, stored: str | None, *, gpus: int, state_dir: str | None
) -> CapacityProfile | None:
    """Return the measured profile, if one is named: of a file, or of those that are stored.

    Raises :class:`CliError`.
    """
    from billing.costing.measured_capacity import read_capacity_profile

    if path is not None and stored is not None:
        raise CliError("Give --capacity, or --stored-capacity: not both.")
    if path is not None:
        text, name = read_text(path), str(path)
    elif stored is not None:
        content = ControlClient(load(state_dir)).get(f"/capacity-profiles/{stored}")
        text, name = json.dumps(content), stored
    else:
        return None
    with refusing():
        measured = read_capacity_profile(text)
    if measured.gpus != gpus:
        raise CliError(f"{name} was measured on {measured.gpus} GPUs: say --gpus {measured.gpus}.")
    return measured


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
