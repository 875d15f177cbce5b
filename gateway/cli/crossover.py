"""``forebay report crossover``: serverless, dedicated or both, over recorded hours."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli import crossover_options as options
from gateway.cli.costing_files import (
    CurrencyOption,
    PriceOption,
    PricesOption,
    collect_prices,
    refusing,
    write_text,
)
from gateway.cli.errors import CliError
from gateway.cli.ledger_hours import LoadSource
from gateway.cli.options import FromOption, JsonOption, StateDirOption, ToOption
from gateway.cli.output import print_json

if TYPE_CHECKING:
    from billing.costing.dedicated import DedicatedTerms
    from billing.costing.price_list import ListPrice
    from billing.costing.question import ToldCapacity
    from billing.costing.recorded_load import RecordedLoad


_UNNAMED = "an unnamed currency"


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is compared, whichever route's hours it is about."""

    load: RecordedLoad
    prices: list[ListPrice]
    terms: DedicatedTerms
    capacity: ToldCapacity


def report_crossover(
    *,
    gpu_price: options.GpuPriceOption,
    profile: options.ProfileOption = None,
    from_: FromOption = None,
    to: ToOption = None,
    price: PriceOption = None,
    prices: PricesOption = None,
    price_book: options.PriceBookOption = None,
    currency: CurrencyOption = "USD",
    route: options.RouteOption = None,
    by_route: options.ByRouteOption = False,
    growth: options.GrowthOption = Decimal(1),
    gpus: options.GpusOption = 1,
    replicas: options.ReplicasOption = None,
    max_replicas: options.MostOption = None,
    spare: options.SpareOption = 1,
    committed_price: options.CommittedOption = None,
    commitment_months: options.MonthsOption = 0,
    cold_start: options.ColdStartOption = None,
    scale_down_delay: options.DelayOption = 600,
    max_utilization: options.UtilizationOption = Decimal("0.8"),
    tokens_per_second: options.RateOption = None,
    input_rate: options.InputRateOption = None,
    output_rate: options.OutputRateOption = None,
    capacity: options.CapacityOption = None,
    stored_capacity: options.StoredCapacityOption = None,
    ttft_ms: options.TtftOption = None,
    tpot_ms: options.TpotOption = None,
    e2e_ms: options.E2eOption = None,
    percentile: options.PercentileOption = "p95",
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it as SVG.")] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare serverless prices with dedicated GPUs, hour by hour, and say which to choose.

    Without a file, over the ledger's hours. Without a price, serverless costs what was charged.
    """
    from billing.costing.dedicated import DedicatedTerms, Scaling

    terms = DedicatedTerms(
        price_per_gpu_hour=gpu_price,
        gpus_per_replica=gpus,
        max_utilization=max_utilization,
        spare_replicas=spare,
        replicas=replicas,
        max_replicas=max_replicas,
        committed_price_per_gpu_hour=committed_price,
        commitment_months=commitment_months,
        scaling=None if cold_start is None else Scaling(cold_start, scale_down_delay),
    )
    target = options.make_target(ttft_ms, tpot_ms, e2e_ms, percentile)
    measured = options.read_capacity(capacity, stored_capacity, gpus=gpus, state_dir=state_dir)
    told = options.tell_capacity(tokens_per_second, input_rate, output_rate, measured, target)
    listed = collect_prices(price, prices, currency=currency)
    source = LoadSource(profile, from_, to, state_dir)
    load, listed = _gather(source, listed, price_book, growth)
    asked = _Asked(load, listed, terms, told)
    _report(asked, route, plot, by_route=by_route, as_json=as_json)


def _report(
    asked: _Asked, route: str | None, plot: Path | None, *, by_route: bool, as_json: bool
) -> None:
    if by_route:
        _report_routes(asked, as_json=as_json)
    else:
        _report_one(asked, route, plot=plot, as_json=as_json)


def _gather(
    source: LoadSource, prices: list[ListPrice], price_book: str | None, growth: Decimal
) -> tuple[RecordedLoad, list[ListPrice]]:
    if price_book is not None:
        if prices:
            raise CliError("Give a --price-book, or prices: not both.")
        prices = source.list_prices(price_book)
    with refusing():
        return source.read().grown(growth), prices


def _report_one(asked: _Asked, route: str | None, *, plot: Path | None, as_json: bool) -> None:
    from billing.costing.plain_report import plain_crossover
    from billing.costing.report_routes import report_route
    from gateway.cli.show_crossover import print_report

    with refusing():
        found = report_route(asked.load, route, asked.prices, asked.terms, asked.capacity)
    if found.question is None or found.report is None:  # report_route refuses instead
        raise CliError(f"{found.problem}.")
    currency = found.currency or _UNNAMED
    if plot is not None:
        from gateway.cli.plot_crossover import draw_crossover

        write_text(plot, draw_crossover(found.question, found.report, currency))
    if as_json:
        plain = plain_crossover(found.report, found.sensitivity, currency)
        print_json({"ledger_notes": found.load_notes, **plain})
    else:
        print_report(found.report, found.sensitivity, currency, found.load_notes)


def _report_routes(asked: _Asked, *, as_json: bool) -> None:
    from billing.costing.report_routes import report_routes
    from gateway.cli.show_route_costs import plain_route_costs, print_route_costs

    with refusing():
        if not asked.load.routes:
            raise CliError("The profile's rows name no route.")
        whole, *routes = report_routes(asked.load, asked.prices, asked.terms, asked.capacity)
    rows = [plain_route_costs(found) for found in (*routes, whole)]
    currencies = {found.currency or _UNNAMED for found in routes}
    currency = currencies.pop() if len(currencies) == 1 else None
    if as_json:
        print_json({"currency": currency, "data": rows})
    else:
        print_route_costs(rows, currency)
