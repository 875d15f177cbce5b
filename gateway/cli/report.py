"""``forebay report``: what served traffic costs, how well it was served, what it would cost."""

from __future__ import annotations

from typing import Annotated

import typer

from billing.costing.show_figures import show_money, show_percent
from gateway.cli import capacity_profiles
from gateway.cli import crossover_options as options
from gateway.cli.costing_files import (
    CurrencyOption,
    PriceOption,
    PricesOption,
    collect_prices,
    refusing,
    to_plain,
)
from gateway.cli.crossover import report_crossover
from gateway.cli.ledger_hours import LoadSource
from gateway.cli.options import FromOption, JsonOption, StateDirOption, ToOption
from gateway.cli.output import Columns, print_json, print_table
from gateway.cli.savings import show_savings
from gateway.cli.serving import show_serving

app = typer.Typer(
    no_args_is_help=True,
    help="Serverless or dedicated, from recorded hours; how well traffic was served; what tiers "
    "have saved.",
)
app.command("crossover")(report_crossover)
app.command("savings")(show_savings)
app.command("serving")(show_serving)
app.add_typer(capacity_profiles.app, name="capacity")

_BACKTEST: Columns = (
    ("FIGURE", "figure"),
    ("PREDICTED", "predicted"),
    ("CAME", "actual"),
    ("ERROR %", "error"),
)


@app.command("backtest")
def back_test(
    *,
    profile: options.ProfileOption = None,
    from_: FromOption = None,
    to: ToOption = None,
    price: PriceOption = None,
    prices: PricesOption = None,
    currency: CurrencyOption = "USD",
    route: options.RouteOption = None,
    fit_weeks: Annotated[int, typer.Option(min=1, help="Weeks to learn from.")] = 1,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fit on the first weeks, predict the cost and the p95 hour of the next, show the error.

    Without a file, on the ledger's hours.
    """
    from billing.costing import forecast
    from billing.costing.demand import list_serverless_costs
    from billing.costing.load_notes import list_load_notes
    from billing.costing.price_list import get_currency
    from billing.costing.route_prices import price_load

    listed = collect_prices(price, prices, currency=currency)
    load = LoadSource(profile, from_, to, state_dir).read()
    with refusing():
        priced = price_load(load, route, listed)
        cheapest = list_serverless_costs(priced.profile, priced.prices)[0].price
        found = forecast.back_test(priced.profile, cheapest, fit_weeks=fit_weeks)
        unit = get_currency(listed) if listed else load.find_currency(route)
    notes = list_load_notes(load, route)
    if as_json:
        told = {"currency": unit, "ledger_notes": notes, "notes": priced.notes}
        print_json({**told, **to_plain(found)})
        return
    predicted, actual = found.predicted, found.actual
    rows = [
        {
            "figure": f"cost of the week{f', {unit}' if unit else ''}",
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
    for note in (*notes, *priced.notes):
        print(f"Note: {note}.")
