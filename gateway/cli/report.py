"""``forebay report``: serverless or dedicated, from the hours of a recorded load."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli import crossover_options as options
from gateway.cli.costing_files import (
    CurrencyOption,
    PriceOption,
    PricesOption,
    collect_prices,
    read_text,
    refusing,
    show_money,
    show_percent,
    to_plain,
    write_text,
)
from gateway.cli.errors import CliError
from gateway.cli.options import JsonOption
from gateway.cli.output import Columns, print_json, print_table
from gateway.cli.savings import show_savings

if TYPE_CHECKING:
    from billing.costing.dedicated import DedicatedTerms
    from billing.costing.price_list import ListPrice

app = typer.Typer(
    no_args_is_help=True,
    help="Serverless or dedicated, from recorded hours; and what tiers have saved.",
)
app.command("savings")(show_savings)

_ROUTES: Columns = (
    ("ROUTE", "route"),
    ("TOKENS A DAY", "tokens_per_day"),
    ("SERVERLESS", "serverless"),
    ("DEDICATED", "dedicated"),
    ("HYBRID", "hybrid"),
    ("BEST", "best"),
    ("REPLICAS", "replicas"),
    ("SAVING", "saving"),
)
_BACKTEST: Columns = (
    ("FIGURE", "figure"),
    ("PREDICTED", "predicted"),
    ("CAME", "actual"),
    ("ERROR %", "error"),
)


@app.command()
def crossover(
    *,
    profile: options.ProfileOption,
    gpu_price: options.GpuPriceOption,
    price: PriceOption = None,
    prices: PricesOption = None,
    currency: CurrencyOption = "USD",
    route: options.RouteOption = None,
    by_route: Annotated[
        bool, typer.Option("--by-route", help="A line for each route, and for all together.")
    ] = False,
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
    ttft_ms: options.TtftOption = None,
    tpot_ms: options.TpotOption = None,
    e2e_ms: options.E2eOption = None,
    percentile: options.PercentileOption = "p95",
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it as SVG.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare serverless prices with dedicated GPUs, hour by hour, and say which to choose.

    Without a price, serverless costs what the hours were charged.
    """
    from billing.costing.dedicated import DedicatedTerms, Scaling

    listed = collect_prices(price, prices, currency=currency)
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
    wish = options.CapacityWish(tokens_per_second, input_rate, output_rate, capacity, target)
    text = read_text(profile)
    if by_route:
        _report_routes(text, listed, terms, wish, as_json=as_json)
    else:
        _report_one(text, route, listed, terms, wish, plot=plot, as_json=as_json)


@app.command("backtest")
def back_test(
    *,
    profile: options.ProfileOption,
    price: PriceOption = None,
    prices: PricesOption = None,
    currency: CurrencyOption = "USD",
    route: options.RouteOption = None,
    fit_weeks: Annotated[int, typer.Option(min=1, help="Weeks to learn from.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Fit on the first weeks, predict the cost and the p95 hour of the next, show the error."""
    from billing.costing import forecast
    from billing.costing.demand import list_serverless_costs
    from billing.costing.route_prices import read_priced

    listed = collect_prices(price, prices, currency=currency)
    with refusing():
        hours, chosen = read_priced(read_text(profile), route, listed)
        cheapest = list_serverless_costs(hours, chosen)[0].price
        found = forecast.back_test(hours, cheapest, fit_weeks=fit_weeks)
    if as_json:
        print_json(to_plain(found))
        return
    predicted, actual = found.predicted, found.actual
    rows = [
        {
            "figure": "cost of the week",
            "predicted": show_money(predicted.cost),
            "actual": show_money(actual.cost),
            "error": show_percent(found.cost_error),
        },
        {
            "figure": "tokens of the p95 hour",
            "predicted": format(predicted.p95_hour_tokens, ".0f"),
            "actual": format(actual.p95_hour_tokens, ".0f"),
            "error": show_percent(found.p95_error),
        },
    ]
    print_table(rows, _BACKTEST, empty="")


def _report_one(
    text: str,
    route: str | None,
    prices: list[ListPrice],
    terms: DedicatedTerms,
    wish: options.CapacityWish,
    *,
    plot: Path | None,
    as_json: bool,
) -> None:
    from billing.costing.crossover import report_crossover
    from billing.costing.route_prices import read_priced
    from billing.costing.sensitivity import find_sensitivity
    from gateway.cli.show_crossover import print_report

    currency = find_currency(text, prices)
    with refusing():
        question = options.make_question(*read_priced(text, route, prices), terms, wish)
        report = report_crossover(question)
        sensitivity = find_sensitivity(question)
    if plot is not None:
        from gateway.cli.plot_crossover import draw_crossover

        write_text(plot, draw_crossover(question, report, currency))
    if as_json:
        plain = to_plain(report, without=("hourly_costs",))
        saving = to_plain(report.comparison.saving_per_month)
        print_json(
            {"currency": currency, **plain, "saving_per_month": saving}
            | {"sensitivity": to_plain(sensitivity)}
        )
    else:
        print_report(report, sensitivity, currency)


def _report_routes(
    text: str,
    prices: list[ListPrice],
    terms: DedicatedTerms,
    wish: options.CapacityWish,
    *,
    as_json: bool,
) -> None:
    from billing.costing.hourly_profile import list_routes

    currency = find_currency(text, prices)
    with refusing():
        routes: list[str | None] = [*list_routes(text), None]
        if len(routes) == 1:
            raise CliError("The profile's rows name no route.")
        rows = [_summarize(text, route, prices, terms, wish) for route in routes]
    if as_json:
        print_json({"currency": currency, "data": rows})
        return
    print(f"Costs of a month of 30 days in {currency}. All together: on one kind of replica.")
    print_table([{**row, **_rounded(row)} for row in rows], _ROUTES, empty="")


def _summarize(
    text: str,
    route: str | None,
    prices: list[ListPrice],
    terms: DedicatedTerms,
    wish: options.CapacityWish,
) -> dict[str, Any]:
    from billing.costing.crossover import report_crossover
    from billing.costing.route_prices import read_priced

    question = options.make_question(*read_priced(text, route, prices), terms, wish)
    report = report_crossover(question)
    found = report.comparison
    best = found.get(found.best)
    costs: dict[str, Any] = {choice.kind: to_plain(choice.per_month) for choice in found.choices}
    return {
        "route": route or "all together",
        "tokens_per_day": format(report.load.tokens_per_day, ".0f"),
        **costs,
        "best": found.best,
        "replicas": best.replicas + best.spare_replicas,
        "saving": to_plain(found.saving_per_month),
        "reason": found.dedicated.reason,
    }


def _rounded(row: dict[str, Any]) -> dict[str, str | None]:
    names = ("serverless", "dedicated", "hybrid", "saving")
    return {name: None if row[name] is None else show_money(Decimal(row[name])) for name in names}


def find_currency(text: str, prices: list[ListPrice]) -> str:
    """Return the report's one currency. Raises :class:`CliError` for prices in several."""
    from billing.costing import hourly_profile
    from billing.costing.price_list import get_currency

    with refusing():
        if prices:
            return get_currency(prices)
        return hourly_profile.find_currency(text) or "an unnamed currency"
