"""Rating: the public cases of other gateways that concern counts and prices (28 to 31)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from billing.money import EXACT
from billing.pricing.price_book import PriceTimeline
from billing.pricing.rate import MAX_TOKENS, ImplausibleUsageError, check_usage, rate
from billing.usage.event import TokenUsage
from tests.factories.prices import make_terms


class TestCachedInput:
    """Case 28: charged twice, at full price, free by mistake, or turned into a credit."""

    usage = TokenUsage(20212, 16298, 931, None)

    def test_has_its_own_price(self) -> None:
        rated = rate(self.usage, make_terms("0.50", "1.50", "0.05"))
        assert rated.input_charge == Decimal("0.001957")  # 3914 * 0.50 / 1M
        assert rated.cached_input_charge == Decimal("0.0008149")  # 16298 * 0.05 / 1M
        assert rated.output_charge == Decimal("0.0013965")
        assert rated.charge == Decimal("0.0041684")

    def test_costs_what_input_costs_when_no_price_is_set(self) -> None:
        rated = rate(self.usage, make_terms("0.50", "1.50", None))
        assert rated.input_charge + rated.cached_input_charge == Decimal("0.010106")

    def test_is_free_when_its_price_is_zero(self) -> None:
        rated = rate(self.usage, make_terms("0.50", "1.50", "0"))
        assert rated.cached_input_charge == 0
        assert rated.charge == Decimal("0.0033535")

    def test_is_never_more_than_the_input(self) -> None:
        rated = rate(TokenUsage(20212, 30000, 0, None), make_terms("0.50", "1.50", "0.05"))
        assert rated.input_charge == 0
        assert rated.charge == Decimal("0.0010106")  # 20212 * 0.05 / 1M

    def test_unknown_is_none_of_it(self) -> None:
        assert rate(TokenUsage(10, None, 0, None), make_terms("1", "1", "0")).charge == Decimal(
            "0.00001"
        )


def test_reasoning_is_a_part_of_output_and_never_added() -> None:
    """Case 29."""
    with_reasoning = rate(TokenUsage(2008, 0, 266, 261), make_terms())
    without = rate(TokenUsage(2008, 0, 266, None), make_terms())
    assert with_reasoning.output_charge == Decimal("0.000399")
    assert with_reasoning.charge == without.charge


class TestExactness:
    """Case 30: prices rounded when shown, charges cut to cents, float noise."""

    @pytest.mark.parametrize("price", ["0.035", "0.0762341", "3.5e-8", "0.000000000001"])
    def test_a_million_small_requests_cost_what_their_sum_costs(self, price: str) -> None:
        terms = make_terms(price, price)
        one = rate(TokenUsage(7, 0, 0, None), terms).charge
        all_at_once = rate(TokenUsage(7_000_000, 0, 0, None), terms).charge
        assert one > 0
        assert one * 1_000_000 == all_at_once == Decimal(price) * 7

    def test_the_most_digits_there_can_be_are_kept(self) -> None:
        price = "999999999999.999999999999"
        usage = TokenUsage(MAX_TOKENS, 0, MAX_TOKENS, None)
        expected = 2 * MAX_TOKENS * 999999999999999999999999
        assert rate(usage, make_terms(price, price)).charge == Decimal(expected).scaleb(-18, EXACT)


class TestImplausibleCounts:
    """Case 31: an oversized or negative count must never become a credit."""

    @pytest.mark.parametrize("field", range(4))
    @pytest.mark.parametrize("count", [-1, -(2**63), MAX_TOKENS + 1, 2**64, 1.5, "7", True])
    def test_are_refused(self, field: int, count: Any) -> None:
        counts: list[Any] = [10, 0, 10, 0]
        counts[field] = count
        with pytest.raises(ImplausibleUsageError):
            rate(TokenUsage(*counts), make_terms())

    def test_three_billion_tokens_are_many_but_possible(self) -> None:
        assert rate(TokenUsage(3_000_000_000, 0, 0, None), make_terms("1", "1")).charge == 3000


def test_zero_and_unknown_stay_apart() -> None:
    assert check_usage(TokenUsage(None, None, 0, 0)) == TokenUsage(None, None, 0, 0)
    assert check_usage(TokenUsage(5, 9, 3, 7)) == TokenUsage(5, 5, 3, 3)
    assert check_usage(TokenUsage(None, 9, None, 7)) == TokenUsage(None, None, None, None)


class TestPriceTimeline:
    """The price that counts is the one in effect when the request arrived."""

    noon = datetime(2026, 11, 29, 12, tzinfo=UTC)

    def test_takes_the_latest_that_is_not_later(self) -> None:
        old = make_terms(effective_at=self.noon - timedelta(days=2), price_id="old")
        new = make_terms(effective_at=self.noon, price_id="new")
        future = make_terms(effective_at=self.noon + timedelta(days=1), price_id="future")
        timeline = PriceTimeline([future, old, new])

        def found(at: datetime) -> str | None:
            price = timeline.find_at(at)
            return price and price.id

        assert found(self.noon - timedelta(days=3)) is None
        assert found(self.noon - timedelta(days=2)) == "old"
        assert found(self.noon - timedelta(microseconds=1)) == "old"
        assert found(self.noon) == "new"
        assert found(self.noon + timedelta(days=2)) == "future"

    def test_of_no_prices_has_none(self) -> None:
        assert PriceTimeline([]).find_at(self.noon) is None
