"""Whose price a price is: a route's own, or a provider's that could serve any."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from billing.costing.dedicated import DedicatedTerms
from billing.costing.errors import CostingError
from billing.costing.load_notes import list_load_notes
from billing.costing.price_list import parse_price_list
from billing.costing.question import ToldCapacity
from billing.costing.recorded_load import read_load
from billing.costing.report_routes import report_routes, sum_apart
from billing.costing.route_prices import price_load
from tests.factories.loads import make_price

ROUTES = """hour,route,input_tokens,output_tokens
2026-11-02T00:00Z,big,1000000,0
2026-11-02T00:00Z,small,2000000,0
2026-11-02T01:00Z,small,2000000,0
"""
BOOK = [
    {
        "price_book": "default",
        "route": route,
        "currency": "USD",
        "input_per_million": price,
        "output_per_million": price,
    }
    for route, price in (("small", "1"), ("othercheap", "0.01"))
]


def test_prices_named_like_routes_are_theirs_alone() -> None:
    load = read_load(ROUTES)
    prices = [
        make_price("10", "10", name="book/big"),
        make_price("1", "1", name="book/small"),
        make_price("2", "2", name="acme"),
    ]
    small = price_load(load, "small", prices)
    assert [price.name for price in small.prices] == ["book/small"]
    assert small.profile.tokens.input == 4_000_000
    whole = price_load(load, None, prices)
    assert whole.prices == ()
    assert [hour.charge for hour in whole.profile.hours] == [12, 2]
    assert [price.name for price in price_load(load, "big", prices[1:]).prices] == ["acme"]
    assert price_load(load, None, prices[2:]).prices == (prices[2],)
    assert price_load(load, "big", []).prices == ()
    with pytest.raises(CostingError, match="no price for the route 'big'"):
        price_load(load, None, prices[1:2])


def test_of_names_that_end_alike_the_longest_is_meant() -> None:
    load = read_load(ROUTES.replace(",big,", ",meta/small,"))
    prices = [make_price("1", "1", name="small"), make_price("7", "7", name="meta/small")]
    for listed in (prices, prices[::-1]):
        for route, price in (("small", "small"), ("meta/small", "meta/small")):
            assert [one.name for one in price_load(load, route, listed).prices] == [price]
    assert [hour.charge for hour in price_load(load, None, prices).profile.hours] == [9, 2]


def test_requests_that_have_no_price_are_not_free() -> None:
    head = "hour,route,requests,input_tokens,output_tokens,charge,currency,unpriced_requests\n"
    row = "2026-11-02T00:00Z,big,3,1000,10,{},USD,{}\n"
    told = "no price for 3 of the requests: give a serverless price"
    for route in ("big", None):
        with pytest.raises(CostingError, match=told):
            price_load(read_load(head + row.format(0, 3)), route, [])
        for priced in (row.format("0.5", 1), row.format(0, 0)):
            assert price_load(read_load(head + priced), route, []).profile.charge is not None


def test_routes_in_several_currencies_are_not_added_up() -> None:
    rows = "hour,route,input_tokens,output_tokens,charge,currency\n" + "".join(
        f"2026-11-02T00:00Z,{route},1000000,0,3,{currency}\n"
        for route, currency in (("big", "USD"), ("eu", "EUR"))
    )
    terms, told = DedicatedTerms(price_per_gpu_hour=Decimal(1)), ToldCapacity(rate=Decimal(1000))
    reports = report_routes(read_load(rows), [], terms, told)
    assert [one.currency for one in reports] == [None, "USD", "EUR"]
    assert reports[0].problem is not None
    assert reports[0].problem.startswith("charges in EUR and USD cannot be added: choose a route")
    assert [one.problem for one in reports[1:]] == [None, None]
    assert sum_apart(reports) is None
    assert sum_apart(reports[:2]) == 720  # one dollar an hour is less than three
    at_list = report_routes(read_load(rows), [make_price("2", "2")], terms, told)
    assert [one.currency for one in at_list] == ["USD"] * 3
    assert sum_apart(at_list) == 2 * 720


def test_a_price_of_a_route_that_was_not_used_serves_no_other() -> None:
    load, book = read_load(ROUTES), parse_price_list(json.dumps(BOOK), currency="USD")
    assert [(price.name, price.route) for price in book] == [
        ("default/small", "small"),
        ("default/othercheap", "othercheap"),
    ]
    assert [price.name for price in price_load(load, "small", book).prices] == ["default/small"]
    for route in ("big", None):
        with pytest.raises(CostingError, match="no price for the route 'big'"):
            price_load(load, route, book)
    with pytest.raises(CostingError, match="no price for the route 'small'"):
        price_load(load, "small", book[1:])
    acme = make_price("3", "3")
    assert price_load(load, "big", [*book, acme]).prices == (acme,)
    assert [hour.charge for hour in price_load(load, None, [*book, acme]).profile.hours] == [5, 2]


def test_hours_that_name_no_route() -> None:
    book = parse_price_list(json.dumps(BOOK), currency="USD")
    nameless = read_load(ROUTES.replace(",big,", ",,").replace(",small,", ",,"))
    priced = price_load(nameless, None, book)
    assert [price.name for price in priced.prices] == ["default/small", "default/othercheap"]
    assert "name no route" in priced.notes[0]
    # Beside named ones they are part of the whole, and need a price that is no route's.
    mixed = read_load(ROUTES.replace(",big,", ",,"))
    with pytest.raises(CostingError, match="no price for hours that name no route"):
        price_load(mixed, None, book)
    whole = price_load(mixed, None, [*book, make_price("3", "3")])
    assert [hour.charge for hour in whole.profile.hours] == [5, 2]


def test_a_route_without_a_price_has_a_problem_and_the_others_have_figures() -> None:
    load, book = read_load(ROUTES), parse_price_list(json.dumps(BOOK), currency="USD")
    terms = DedicatedTerms(price_per_gpu_hour=Decimal(1))
    whole, big, small = report_routes(load, book, terms, ToldCapacity(rate=Decimal(1000)))
    assert whole.problem == big.problem == "there is no price for the route 'big'"
    assert small.report is not None
    assert [cost.name for cost in small.report.serverless_costs] == ["default/small"]


def test_a_record_tells_what_was_not_priced_and_when_a_route_came() -> None:
    rows = ROUTES.replace("tokens\n", "tokens,unpriced_requests\n").replace(",0\n", ",0,3\n")
    load = read_load(rows.replace("T00:00Z,small", "T01:00Z,small"))
    assert list_load_notes(load, "big") == (
        "3 requests have no price: nothing of them is in what was charged",
    )
    unpriced, first_used = list_load_notes(load, "small")
    assert unpriced.startswith("6 requests have no price")
    assert first_used.startswith("first used 2026-11-02 01:00 UTC; the hours before")
    assert [note.split()[0] for note in list_load_notes(load, None)] == ["9"]
    assert list_load_notes(read_load(ROUTES), "big") == ()
    grown = list_load_notes(load.grown(Decimal(2)), "big")
    assert grown == list_load_notes(load, "big")
    early = replace(load, first_hour_at=load.rows[0].hour.hour_at.replace(day=1))
    assert "first used 2026-11-02 00:00 UTC" in list_load_notes(early, None)[1]
