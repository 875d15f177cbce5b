"""``forebay estimate``: what a workload on paper costs, and how costs spread over requests."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer

from billing.costing.show_figures import show_percent
from billing.money import format_amount
from gateway.cli.control_client import ControlClient
from gateway.cli.costing_files import (
    CurrencyOption,
    PriceOption,
    PricesOption,
    collect_prices,
    decimal_option,
    read_text,
    refusing,
    to_plain,
)
from gateway.cli.errors import CliError
from gateway.cli.options import (
    FromOption,
    JsonOption,
    StateDirOption,
    ToOption,
    load,
    parse_time,
)
from gateway.cli.output import Columns, print_json, print_table

app = typer.Typer(no_args_is_help=True, help="Costs and times on paper, exact.")

InputOption = Annotated[int, typer.Option("--input", min=0, help="Input tokens.")]
OutputOption = Annotated[int, typer.Option("--output", min=0, help="Output tokens.")]
_WORKLOAD: Columns = (
    ("PRICE", "name"),
    ("CURRENCY", "currency"),
    ("PER REQUEST", "per_request"),
    ("PER DAY", "per_day"),
    ("PER MONTH (30 DAYS)", "per_month"),
    ("TIMES THE CHEAPEST", "times_cheapest"),
)
_TURNS: Columns = (
    ("TURN", "turn"),
    ("INPUT", "input_tokens"),
    ("OUTPUT", "output_tokens"),
    ("FROM CACHE", "cached_input_tokens"),
)
_CONVERSATION: Columns = (
    ("PRICE", "name"),
    ("CURRENCY", "currency"),
    ("WITHOUT CACHE", "without_cache"),
    ("WITH CACHE", "with_cache"),
    ("SAVED %", "saved_percent"),
)
_SPREAD: Columns = (("FIGURE", "figure"), ("VALUE", "value"))


@app.command()
def workload(
    *,
    requests_per_day: Annotated[int, typer.Option(min=0, help="Requests a day.")],
    input_tokens: InputOption,
    output_tokens: OutputOption,
    cached: Annotated[int, typer.Option(min=0, help="Of the input: from a cache.")] = 0,
    price: PriceOption = None,
    prices: PricesOption = None,
    currency: CurrencyOption = "USD",
    as_json: JsonOption = False,
) -> None:
    """Cost per request, day and month of 30 days, at each price side by side."""
    from billing.costing.estimate import Workload, estimate_cost
    from billing.costing.price_list import get_currency
    from billing.costing.token_counts import TokenCounts
    from billing.costing.wide_decimal import divide

    asked = _need_prices(collect_prices(price, prices, currency=currency))
    with refusing():
        get_currency(asked)
        tokens = TokenCounts.of(input=input_tokens, output=output_tokens, cached_input=cached)
        estimates = estimate_cost(Workload(requests_per_day, tokens), asked)
    least = estimates[0].per_day
    rows = [
        {
            "name": estimate.price.name,
            "currency": estimate.price.currency,
            "per_request": format_amount(estimate.per_request),
            "per_day": format_amount(estimate.per_day),
            "per_month": format_amount(estimate.per_month),
            "times_cheapest": format(divide(estimate.per_day, least), ".2f") if least else None,
        }
        for estimate in estimates
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, _WORKLOAD, empty="")


@app.command()
def conversation(
    *,
    turns: Annotated[int, typer.Option(min=1, help="Requests of one conversation.")],
    input_tokens: InputOption,
    output_tokens: OutputOption,
    system: Annotated[int, typer.Option(min=0, help="Tokens that begin every turn.")] = 0,
    block: Annotated[int, typer.Option(min=1, help="Tokens of a block of the cache.")] = 16,
    price: PriceOption = None,
    prices: PricesOption = None,
    currency: CurrencyOption = "USD",
    as_json: JsonOption = False,
) -> None:
    """How the context grows when each turn sends all turns before it, with and without a cache.

    ``--input`` and ``--output`` are what is new in each turn.
    """
    from billing.costing.conversation import Conversation, list_turns, sum_turns

    asked = collect_prices(price, prices, currency=currency)
    with refusing():
        listed = list_turns(Conversation(turns, system, input_tokens, output_tokens, block))
    rows = [
        {
            "turn": turn.number,
            "input_tokens": int(turn.with_cache.input),
            "output_tokens": int(turn.with_cache.output),
            "cached_input_tokens": int(turn.with_cache.cached_input),
        }
        for turn in listed
    ]
    without, with_cache = sum_turns(listed)
    total = {
        "turn": "all",
        "input_tokens": int(with_cache.input),
        "output_tokens": int(with_cache.output),
        "cached_input_tokens": int(with_cache.cached_input),
    }
    costs = [_conversation_cost(one, without, with_cache) for one in asked]
    if as_json:
        print_json({"turns": rows, "total": total, "costs": costs})
        return
    print_table([*rows, total], _TURNS, empty="")
    if costs:
        print()
        print_table(costs, _CONVERSATION, empty="")


@app.command()
def latency(
    *,
    ttft: Annotated[Decimal, decimal_option("--ttft", help="Time to first token, in seconds.")],
    tpot: Annotated[Decimal, decimal_option("--tpot", help="Time per output token, in ms.")],
    output_tokens: Annotated[
        list[int], typer.Option("--output", min=1, help="Output tokens; may be repeated.")
    ],
    as_json: JsonOption = False,
) -> None:
    """How long an answer takes: TTFT + TPOT x (output tokens - 1)."""
    from billing.costing.latency import find_e2e_seconds

    with refusing():
        rows = [
            {
                "output_tokens": count,
                "e2e_seconds": format_amount(
                    find_e2e_seconds(
                        ttft_seconds=ttft, tpot_seconds=tpot.scaleb(-3), output_tokens=count
                    )
                ),
            }
            for count in output_tokens
        ]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, (("OUTPUT", "output_tokens"), ("E2E S", "e2e_seconds")), empty="")


@app.command()
def spread(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="CSV or JSON with a charge a row. Default: ledger."),
    ] = None,
    *,
    from_: FromOption = None,
    to: ToOption = None,
    project: Annotated[str | None, typer.Option(help="Only this project (id).")] = None,
    route: Annotated[str | None, typer.Option(help="Only this route.")] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """How charges spread over requests: median, p95, p99, and what the dearest hundredth pays.

    Without a file, of all requests of the ledger that were billed, over the control API.
    """
    if file is None:
        query = {
            "from": parse_time(from_, "--from"),
            "to": parse_time(to, "--to"),
            "project_id": project,
            "route": route,
        }
        answer = ControlClient(load(state_dir)).get("/charges/spread", **query)
        if as_json:
            print_json(answer)
            return
        if not answer["data"]:
            raise CliError(f"No request was charged from {answer['from']} to {answer['to']}.")
        for found in answer["data"]:
            _print_spread(found)
        if answer["unpriced_requests"]:
            print(f"Note: {answer['unpriced_requests']} requests have no price yet.")
        return
    if from_ or to or project or route:
        raise CliError("--from, --to, --project and --route choose requests of the ledger.")
    found = _spread_file(file)
    if as_json:
        print_json(found)
    else:
        _print_spread(found)


def _spread_file(path: Path) -> dict[str, Any]:
    from billing.costing.distribution import spread_charges
    from billing.costing.read_rows import read_rows

    with refusing():
        currency, charges = _charges_of(list(read_rows(read_text(path))))
        return {"currency": currency, **to_plain(spread_charges(charges))}


def _print_spread(found: dict[str, Any]) -> None:
    shown = {**found, "top_share": show_percent(_decimal_or_none(found["top_share"]))}
    names = {"top_share": "top requests' % of the bill", "p99_to_median": "p99 / median"}
    lines = [
        {"figure": names.get(key, key.replace("_", " ")), "value": value}
        for key, value in shown.items()
    ]
    print_table(lines, _SPREAD, empty="")


def _need_prices(prices: list[Any]) -> list[Any]:
    if not prices:
        raise CliError("Give at least one --price NAME=INPUT/OUTPUT, or --prices FILE.")
    return prices


def _conversation_cost(price: Any, without: Any, with_cache: Any) -> dict[str, Any]:
    from billing.costing.price_list import charge_at
    from billing.costing.wide_decimal import divide

    dear, cheap = charge_at(price, without), charge_at(price, with_cache)
    return {
        "name": price.name,
        "currency": price.currency,
        "without_cache": format_amount(dear),
        "with_cache": format_amount(cheap),
        "saved_percent": show_percent(divide(dear - cheap, dear)) if dear else None,
    }


def _charges_of(rows: list[Any]) -> tuple[str | None, list[Decimal]]:
    """Return the one currency and the charges; rows that were not charged are left out."""
    from billing.money import InvalidAmountError, parse_charge

    charged = [row for row in rows if row.get("charge") is not None and row["charge"] != ""]
    currencies = {row.get("currency") for row in charged} - {None, ""}
    if len(currencies) > 1:
        raise CliError(f"Charges in {' and '.join(sorted(currencies))} cannot be spread together.")
    try:
        charges = [parse_charge(str(row["charge"])) for row in charged]
    except InvalidAmountError as error:
        raise CliError(f"A charge is no amount: {error}.") from error
    return (currencies.pop() if currencies else None), charges


def _decimal_or_none(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)
