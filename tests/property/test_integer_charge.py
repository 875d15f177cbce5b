"""The request path's charge equals the ledger's, digit by digit."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import example, given
from hypothesis import strategies as st

from billing.money import EXACT, format_amount
from billing.pricing.integer_charge import ChargeTimeline, IntegerCharge, share_saving
from billing.pricing.price_book import PriceTerms
from billing.pricing.rate import MAX_TOKENS, rate
from billing.pricing.rate import share_saving as share_rated
from billing.usage.event import TokenUsage

prices = st.decimals(min_value=0, max_value=10**6, places=12, allow_nan=False).map(
    lambda price: price.normalize()
)
counts = st.integers(0, MAX_TOKENS)


@given(prices, st.none() | prices, prices, counts, st.none() | counts, counts)
@example(Decimal(0), Decimal(0), Decimal(0), 5, 5, 5)
@example(Decimal("0.0762341"), None, Decimal("3.5E-8"), 7, None, 1)
@example(Decimal("1E+2"), None, Decimal("1E+3"), 10**6, 0, 10**6)
def test_it_equals_the_rated_charge(
    per_input: Decimal,
    per_cached: Decimal | None,
    per_output: Decimal,
    input_tokens: int,
    cached: int | None,
    output_tokens: int,
) -> None:
    usage = TokenUsage(input_tokens, cached, output_tokens, None)
    terms = PriceTerms("price", "USD", datetime.now(UTC), per_input, per_cached, per_output)
    charge = IntegerCharge(
        currency="USD",
        input_per_million=per_input,
        cached_input_per_million=per_cached,
        output_per_million=per_output,
    )
    exact = rate(usage, terms).charge
    assert charge.find_text(usage) == format_amount(exact)
    # What is held and counted is that, rounded up to a billionth.
    nano = charge.nano(input_tokens, output_tokens, cached or 0)
    assert nano - 1 < exact.scaleb(9) <= nano


def test_unknown_and_untrue_counts_have_no_charge() -> None:
    charge = IntegerCharge(
        currency="USD",
        input_per_million=Decimal(1),
        cached_input_per_million=None,
        output_per_million=Decimal(1),
    )
    for usage in (
        TokenUsage(None, None, 5),
        TokenUsage(5, None, None),
        TokenUsage(-1, None, 5),
        TokenUsage(5, -1, 5),
        TokenUsage(5, None, MAX_TOKENS + 1),
    ):
        assert charge.find_text(usage) is None


def test_the_price_of_the_moment_holds() -> None:
    def at(price: int) -> IntegerCharge:
        return IntegerCharge(
            currency="USD",
            input_per_million=Decimal(price),
            cached_input_per_million=None,
            output_per_million=Decimal(0),
        )

    timeline = ChargeTimeline([(200, at(2)), (100, at(1))])
    usage = TokenUsage(1_000_000, None, 0)
    assert timeline.find_at(99) is None
    found = [timeline.find_at(moment) for moment in (100, 199, 200, 10**18)]
    assert [price and price.find_text(usage) for price in found] == ["1", "1", "2", "2"]


shares = st.decimals(0, 1, places=4)
triples = st.tuples(prices, st.none() | prices, prices)


@given(triples, triples, shares, counts, st.none() | counts, counts)
@example(
    (Decimal(1), None, Decimal(1)), (Decimal(10), None, Decimal(10)), Decimal("0.25"), 10, 0, 3
)
@example((Decimal(9), None, Decimal(1)), (Decimal(1), None, Decimal(9)), Decimal("0.5"), 5, 2, 5)
def test_a_shared_saving_equals_the_rated_one(
    own: tuple[Decimal, Decimal | None, Decimal],
    dearest: tuple[Decimal, Decimal | None, Decimal],
    share: Decimal,
    input_tokens: int,
    cached: int | None,
    output_tokens: int,
) -> None:
    usage = TokenUsage(input_tokens, cached, output_tokens, None)
    now = datetime.now(UTC)
    rated = [
        rate(usage, PriceTerms("p", "EUR", now, one[0], one[1], one[2])) for one in (own, dearest)
    ]
    shared = share_rated(rated[0], rated[1], share)
    timelines = [
        ChargeTimeline(
            [
                (
                    at,
                    IntegerCharge(
                        currency="EUR",
                        input_per_million=one[0],
                        cached_input_per_million=one[1],
                        output_per_million=one[2],
                    ),
                )
            ]
        )
        for at, one in ((5, own), (7, dearest))
    ]
    timeline = share_saving(timelines[0], timelines[1], share)
    assert timeline.find_at(6) is None  # not before both have a price
    charge = timeline.find_at(7)
    assert charge is not None
    assert charge.find_text(usage) == format_amount(shared.charge)
    parts = EXACT.add(shared.input_charge, shared.cached_input_charge)
    assert shared.charge == EXACT.add(parts, shared.output_charge)
    low, high = sorted((rated[0].charge, rated[1].charge))
    assert max(low, rated[0].charge) <= shared.charge <= high
    nano = charge.nano(input_tokens, output_tokens, cached or 0)
    assert Decimal(nano - 1) < shared.charge * 10**9 <= Decimal(nano)
