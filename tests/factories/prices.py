"""Prices for tests, as plain terms."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from billing.pricing.price_book import OrganizationPrices, PriceTerms, PriceTimeline
from tests.factories.journals import ROUTE_ID

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def make_terms(
    input_price: str = "0.50",
    output_price: str = "1.50",
    cached_price: str | None = None,
    *,
    effective_at: datetime = LONG_AGO,
    price_id: str = "price_1",
    currency: str = "EUR",
) -> PriceTerms:
    return PriceTerms(
        id=price_id,
        currency=currency,
        effective_at=effective_at,
        input_per_million=Decimal(input_price),
        cached_input_per_million=None if cached_price is None else Decimal(cached_price),
        output_per_million=Decimal(output_price),
    )


def make_prices(*terms: PriceTerms) -> OrganizationPrices:
    return OrganizationPrices(currency="EUR", timelines={ROUTE_ID: PriceTimeline(terms)})
