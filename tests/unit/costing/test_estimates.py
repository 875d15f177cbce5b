"""Workloads, conversations, times and the spread of charges, on paper."""

from __future__ import annotations

from decimal import Decimal

import pytest

from billing.costing.conversation import Conversation, list_turns, sum_turns
from billing.costing.distribution import spread_charges
from billing.costing.errors import CostingError
from billing.costing.estimate import Workload, estimate_cost
from billing.costing.latency import find_e2e_seconds, find_tpot_seconds
from billing.costing.price_list import (
    charge_at,
    get_currency,
    parse_price_list,
    parse_price_option,
)
from billing.costing.token_counts import TokenCounts
from billing.pricing.rate import rate
from billing.usage.event import TokenUsage
from tests.factories.loads import make_price
from tests.factories.prices import make_terms


def test_providers_stand_side_by_side_cheapest_first() -> None:
    workload = Workload(1000, TokenCounts.of(input=1000, cached_input=600, output=100))
    prices = [
        make_price("1", "2", name="dear"),
        make_price("1", "2", cached="0.1", name="with cache"),
    ]
    estimates = estimate_cost(workload, prices)
    assert [(found.price.name, found.per_request) for found in estimates] == [
        ("with cache", Decimal("0.00066")),
        ("dear", Decimal("0.0012")),
    ]


def test_a_charge_on_paper_is_the_charge_of_the_ledger() -> None:
    terms = make_terms("0.137", "1.911", "0.0313")
    price = make_price("0.137", "1.911", cached="0.0313")
    for input_, cached, output in ((1, 0, 0), (999, 998, 12_345), (2**40, 7, 2**40)):
        tokens = TokenCounts.of(input=input_, cached_input=cached, output=output)
        rated = rate(TokenUsage(input_, cached, output), terms)
        assert charge_at(price, tokens) == rated.charge


def test_price_options() -> None:
    assert parse_price_option("a=b=0.1/0.4", currency="EUR").name == "a=b"
    price = parse_price_option("acme=0.10/0.05/0.40", currency="EUR")
    assert price.cached_input_per_million == Decimal("0.05")
    assert price.currency == "EUR"
    for text in ("acme", "acme=1", "acme=1/2/3/4", "=1/2", "acme=x/1", "acme=-1/1"):
        with pytest.raises(CostingError):
            parse_price_option(text, currency="USD")


def test_price_lists_in_csv_and_json() -> None:
    csv = (
        "provider,name,input_per_million,cached_input_per_million,output_per_million,currency\n"
        "acme,large,1.00,0.10,4.00,EUR\nacme,small,0.1,,0.4,\n"
    )
    large, small = parse_price_list(csv, currency="USD")
    assert (large.name, large.currency) == ("acme/large", "EUR")
    assert large.cached_input_per_million == Decimal("0.1")
    assert (small.currency, small.cached_input_per_million) == ("USD", None)
    with pytest.raises(CostingError, match="EUR and USD"):
        get_currency([large, small])
    listed = (
        '[{"route": "r", "price_book": "b", "input_per_million": 0.1, "output_per_million": "2"}]'
    )
    (found,) = parse_price_list(listed, currency="USD")
    assert (found.name, found.input_per_million) == ("b/r", Decimal("0.1"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("{", "no valid JSON"),
        ('{"data": 1}', "no list of rows"),
        ("[1]", "no object"),
        ("name,input_per_million\na,1\n", "no output_per_million"),
        ("name,input_per_million,output_per_million\na,1\n", "not as many fields"),
        ("input_per_million,output_per_million\n1,1\n", "no name"),
        ("name,input_per_million,output_per_million\na,1,1\na,1,1\n", "two prices named 'a'"),
        ("name,input_per_million,output_per_million,currency\na,1,1,euro\n", "three capital"),
    ],
)
def test_broken_price_lists(text: str, told: str) -> None:
    with pytest.raises(CostingError, match=told):
        parse_price_list(text, currency="USD")


def test_a_conversation_sends_its_history_again_and_again() -> None:
    turns = list_turns(
        Conversation(
            turns=3, system_tokens=1000, user_tokens=100, output_tokens=300, block_tokens=16
        )
    )
    assert [int(turn.with_cache.input) for turn in turns] == [1100, 1500, 1900]
    # What the turn before read and wrote is known, in whole blocks: 1400 -> 1392.
    assert [int(turn.with_cache.cached_input) for turn in turns] == [0, 1392, 1792]
    without, with_cache = sum_turns(turns)
    assert without.input == with_cache.input == 4500
    assert without.cached_input == 0
    assert with_cache.output == 900


def test_input_grows_with_the_square_of_the_turns_and_fresh_input_does_not() -> None:
    def whole(turns: int) -> TokenCounts:
        conversation = Conversation(turns, 0, 100, 100, block_tokens=1)
        return sum_turns(list_turns(conversation))[1]

    assert whole(100).input == 100 * 100 * 100  # the sum of 100, 300, 500 ...
    assert whole(200).input == 4 * whole(100).input
    assert whole(100).fresh_input == 100 * 100
    assert whole(200).fresh_input == 2 * whole(100).fresh_input


@pytest.mark.parametrize("turns", [0, 10_001])
def test_senseless_conversations(turns: int) -> None:
    with pytest.raises(CostingError):
        list_turns(Conversation(turns, 0, 1, 1))
    with pytest.raises(CostingError):
        list_turns(Conversation(1, -1, 1, 1))


def test_times() -> None:
    e2e = find_e2e_seconds(
        ttft_seconds=Decimal("0.3"), tpot_seconds=Decimal("0.01"), output_tokens=101
    )
    assert e2e == Decimal("1.3")
    tpot = find_tpot_seconds(e2e_seconds=e2e, ttft_seconds=Decimal("0.3"), output_tokens=101)
    assert tpot == Decimal("0.01")
    with pytest.raises(CostingError):
        find_tpot_seconds(e2e_seconds=e2e, ttft_seconds=Decimal(2), output_tokens=101)
    with pytest.raises(CostingError):
        find_tpot_seconds(e2e_seconds=e2e, ttft_seconds=Decimal(0), output_tokens=1)


def test_percentiles_are_charges_that_occurred() -> None:
    spread = spread_charges([Decimal(n) for n in range(1, 201)])
    assert (spread.median, spread.p95, spread.p99, spread.most) == (100, 190, 198, 200)
    assert spread.mean == Decimal("100.5")
    assert spread.top_requests == 2
    assert spread.top_share is not None
    assert spread.top_share * 20100 == pytest.approx(Decimal(399), abs=Decimal("1e-20"))
    assert spread_charges([Decimal(0)]).top_share is None
    assert spread_charges([Decimal(0)]).p99_to_median is None
    for charges in ([], [Decimal(-1)]):
        with pytest.raises(CostingError):
            spread_charges(charges)


def test_cached_input_is_part_of_input() -> None:
    with pytest.raises(CostingError):
        TokenCounts.of(input=1, cached_input=2, output=0)
    with pytest.raises(CostingError):
        TokenCounts.of(input=-1, output=0)
