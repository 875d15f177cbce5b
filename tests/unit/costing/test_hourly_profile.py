"""Recorded hours: read from files, filled where nothing came, refused where they make no sense."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal

import pytest

from billing.costing.errors import CostingError
from billing.costing.hourly_profile import (
    LoadHour,
    find_currency,
    list_days,
    list_routes,
    make_profile,
    read_profile,
)
from billing.costing.token_counts import TokenCounts
from tests.factories.loads import MONDAY, make_hours

CSV = """hour,route,requests,input_tokens,cached_input_tokens,output_tokens,charge,currency
2026-11-02T00:00:00Z,a,10,1000,500,100,0.5,USD
2026-11-02T00:00:00Z,b,1,10,0,1,0.25,USD
2026-11-02T03:00:00+00:00,a,2,20,,2,0.125,USD
"""


def test_hours_without_requests_are_hours_of_nothing() -> None:
    profile = read_profile(CSV)
    assert [hour.requests for hour in profile.hours] == [11, 0, 0, 2]
    assert [hour.hour_at - MONDAY for hour in profile.hours] == [
        timedelta(hours=n) for n in range(4)
    ]
    assert profile.tokens == TokenCounts.of(input=1030, cached_input=500, output=103)
    assert profile.charge == Decimal("0.875")
    assert profile.requests == 13
    assert profile.per_day(Decimal(2)) == 12


def test_one_route_s_hours() -> None:
    assert list_routes(CSV) == ["a", "b"]
    assert [hour.requests for hour in read_profile(CSV, route="b").hours] == [1]
    with pytest.raises(CostingError, match="no hours of the route 'c'"):
        read_profile(CSV, route="c")


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
    profile = read_profile(text)
    assert [hour.charge for hour in profile.hours] == [Decimal("0.000000000001"), None]
    assert profile.charge is None  # an hour without a price book was never priced
    assert find_currency(text) == "USD"


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("2026-11-02T00:30:00Z,1,1", "not the beginning of an hour"),
        ("yesterday,1,1", "is no hour"),
        ("2026-11-02T00:00:00Z,-1,1", "no count"),
        ("2026-11-02T00:00:00Z,1.5,1", "no count"),
        ("2026-11-02T00:00:00Z,,1", "no input_tokens"),
        ("0001-01-01T00:00:00Z,1,1\n2026-11-02T00:00:00Z,1,1", "five years"),
    ],
)
def test_broken_rows(row: str, told: str) -> None:
    with pytest.raises(CostingError, match=told):
        read_profile(f"hour,input_tokens,output_tokens\n{row}\n")


def test_charges_in_two_currencies_are_never_added() -> None:
    with pytest.raises(CostingError, match="EUR and USD"):
        read_profile(CSV.replace("0.125,USD", "0.125,EUR"))


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
