"""Recorded hours: read from files, filled where nothing came, refused where they make no sense."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal

import pytest

from billing.costing.errors import CostingError
from billing.costing.hourly_profile import LoadHour, list_days, make_profile
from billing.costing.recorded_load import read_load
from billing.costing.token_counts import TokenCounts
from tests.factories.loads import MONDAY, make_hours

CSV = """hour,route,requests,input_tokens,cached_input_tokens,output_tokens,charge,currency
2026-11-02T00:00:00Z,a,10,1000,500,100,0.5,USD
2026-11-02T00:00:00Z,b,1,10,0,1,0.25,USD
2026-11-02T03:00:00+00:00,a,2,20,,2,0.125,USD
"""


def test_hours_without_requests_are_hours_of_nothing() -> None:
    profile = read_load(CSV).profile()
    assert [hour.requests for hour in profile.hours] == [11, 0, 0, 2]
    assert [hour.hour_at - MONDAY for hour in profile.hours] == [
        timedelta(hours=n) for n in range(4)
    ]
    assert profile.tokens == TokenCounts.of(input=1030, cached_input=500, output=103)
    assert profile.charge == Decimal("0.875")
    assert profile.requests == 13
    assert profile.per_day(Decimal(2)) == 12


def test_one_route_s_hours() -> None:
    load = read_load(CSV)
    assert load.routes == ["a", "b"]
    # Over the whole record: one hour of use is not a month of such hours.
    assert [hour.requests for hour in load.profile("b").hours] == [1, 0, 0, 0]
    with pytest.raises(CostingError, match="no hours of the route 'c'"):
        load.profile("c")


def test_a_record_may_be_wider_than_its_rows() -> None:
    row = {"hour": "2026-11-02T01:00:00Z", "input_tokens": 1, "output_tokens": 1}
    told = {"first_hour_at": "2026-11-02T00:00:00Z", "last_hour_at": "2026-11-02T03:00:00Z"}
    profile = read_load(json.dumps({**told, "data": [row]})).profile()
    assert [hour.tokens.total for hour in profile.hours] == [0, 2, 0, 0]
    told["last_hour_at"] = "soon"
    with pytest.raises(CostingError, match="is no hour"):
        read_load(json.dumps({**told, "data": [row]}))


def test_a_load_grows_in_every_count() -> None:
    grown = read_load(CSV).grown(Decimal("1.5")).profile()
    assert (grown.requests, grown.charge) == (20, Decimal("1.3125"))
    assert grown.tokens == read_load(CSV).profile().tokens.times(Decimal("1.5"))
    with pytest.raises(CostingError, match="factor above 0"):
        read_load(CSV).grown(Decimal(0))


def test_what_forebay_usage_prints_is_a_profile() -> None:
    answer = {
        "from": "2026-11-01T00:00:00Z",
        "currency": "USD",
        "data": [
            {
                "group": f"2026-11-02T0{hour}:00:00Z",
                "label": f"2026-11-02T0{hour}:00:00Z",
                "currency": currency,
                "requests": 1,
                "input_tokens": 10,
                "cached_input_tokens": 0,
                "output_tokens": 5,
                "reasoning_tokens": 0,
                "charge": charge,
                "unpriced_requests": 0,
            }
            for hour, currency, charge in ((1, "USD", "0.000000000001"), (2, "XXX", "0"))
        ],
    }
    text = json.dumps(answer)
    profile = read_load(text).profile()
    assert [hour.charge for hour in profile.hours] == [Decimal("0.000000000001"), None]
    assert profile.charge is None  # an hour without a price book was never priced
    assert read_load(text).find_currency() == "USD"


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("2026-11-02T00:30:00Z,1,1", "not the beginning of an hour"),
        ("yesterday,1,1", "is no hour"),
        ("2026-11-02T00:00:00Z,-1,1", "no count"),
        ("2026-11-02T00:00:00Z,1.5,1", "no count"),
        ("2026-11-02T00:00:00Z,,1", "no input_tokens"),
        ("0001-01-01T00:00:00Z,1,1\n2026-11-02T00:00:00Z,1,1", "five years"),
        ("0001-01-01T00:00+14:00,1,1", "no year of UTC from 1 to 9999"),
        ("9999-12-31T23:00-10:00,1,1", "no year of UTC from 1 to 9999"),
        ("9999-12-31T23:00-10:00,1,1\n0001-01-01T00:00+14:00,1,1", "no year of UTC"),
        ("2026-11-02,1,1", "is a day, not an hour"),
        ("20261102,1,1", "is a day, not an hour"),
    ],
)
def test_broken_rows(row: str, told: str) -> None:
    with pytest.raises(CostingError, match=told):
        read_load(f"hour,input_tokens,output_tokens\n{row}\n").profile()


def test_charges_in_two_currencies_are_never_added() -> None:
    load = read_load(CSV.replace("0.125,USD", "0.125,EUR"))
    with pytest.raises(CostingError, match="EUR and USD"):
        load.profile()
    assert load.profile(has_charges=False).charge is None  # at a list's prices they do not matter
    # Each amount has the currency of its own route, whichever others there are.
    apart = read_load(CSV.replace("0.25,USD", "0.25,EUR"))
    assert [apart.find_currency(route) for route in ("a", "b", None)] == ["USD", "EUR", None]
    free = read_load(CSV.replace("0.25,USD", "0,EUR"))
    assert [free.find_currency(route) for route in ("a", "b", None)] == ["USD", "EUR", "USD"]


def test_only_whole_days_are_days() -> None:
    assert [len(day) for day in list_days(make_hours([1] * 50))] == [24, 24]
    late = make_hours([1] * 50, first_at=MONDAY + timedelta(hours=5))
    assert [day[0] for day in list_days(late)] == [19]


def test_hours_need_a_zone() -> None:
    bare = LoadHour(MONDAY.replace(tzinfo=None), 0, TokenCounts.of(input=0, output=0), None)
    with pytest.raises(CostingError, match="no zone"):
        make_profile([bare])
    with pytest.raises(CostingError, match="no hours"):
        make_profile([])
