"""Rating against exact fractions: never rounded, never negative, never less for more."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from billing.money import format_amount, parse_price
from billing.pricing.price_book import PriceTerms
from billing.pricing.rate import MAX_TOKENS, check_usage, rate
from billing.usage.event import TokenUsage
from tests.factories.prices import LONG_AGO

counts = st.none() | st.integers(0, MAX_TOKENS) | st.integers(0, 5000)
amounts = st.integers(0, 10**24 - 1).map(
    lambda units: Decimal(units).scaleb(-12)
) | st.sampled_from([Decimal(0), Decimal("0.035"), Decimal("3.5e-8"), Decimal("1E-12")])
usages = st.builds(TokenUsage, counts, counts, counts, counts)
prices = st.builds(
    PriceTerms,
    st.just("price_1"),
    st.just("EUR"),
    st.just(LONG_AGO),
    amounts,
    st.none() | amounts,
    amounts,
)


def exact(usage: TokenUsage, price: PriceTerms) -> Fraction:
    whole = usage.input_tokens or 0
    cached = min(usage.cached_input_tokens or 0, whole)
    cached_price = price.cached_input_per_million
    if cached_price is None:
        cached_price = price.input_per_million
    return (
        (whole - cached) * Fraction(price.input_per_million)
        + cached * Fraction(cached_price)
        + (usage.output_tokens or 0) * Fraction(price.output_per_million)
    ) / 1_000_000


@given(usages, prices)
def test_the_charge_is_exact_and_the_sum_of_its_parts(usage: TokenUsage, price: PriceTerms) -> None:
    rated = rate(usage, price)
    assert Fraction(rated.charge) == exact(usage, price)
    parts = (rated.input_charge, rated.cached_input_charge, rated.output_charge)
    assert sum(map(Fraction, parts)) == Fraction(rated.charge)
    assert all(part >= 0 for part in parts)


@given(usages, prices, st.integers(1, 1000))
def test_more_output_or_input_never_costs_less(
    usage: TokenUsage, price: PriceTerms, more: int
) -> None:
    cost = rate(usage, price).charge
    output = min((usage.output_tokens or 0) + more, MAX_TOKENS)
    whole = min((usage.input_tokens or 0) + more, MAX_TOKENS)
    cached = usage.cached_input_tokens
    if usage.input_tokens is not None and cached is not None:
        cached = min(cached, usage.input_tokens)
    assert rate(TokenUsage(usage.input_tokens, cached, output), price).charge >= cost
    if usage.input_tokens is not None:
        assert rate(TokenUsage(whole, cached, usage.output_tokens), price).charge >= cost


@given(st.lists(usages, min_size=2, max_size=20), prices)
def test_the_sum_of_charges_is_the_charge_of_the_sums(
    many: list[TokenUsage], price: PriceTerms
) -> None:
    total = sum((Fraction(rate(usage, price).charge) for usage in many), Fraction(0))
    assert total == sum((exact(usage, price) for usage in many), Fraction(0))


@given(usages)
def test_checking_twice_changes_nothing(usage: TokenUsage) -> None:
    once = check_usage(usage)
    assert check_usage(once) == once


@given(amounts)
def test_a_price_survives_being_printed(amount: Decimal) -> None:
    assert parse_price(format_amount(amount)) == amount
