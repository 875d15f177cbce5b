"""The prices that a batch of events may need, read inside the batch's own transaction.

Read anew for every batch: a few rows by index, and never a stale price.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg

from billing.pricing.price_book import OrganizationPrices, PriceTerms, PriceTimeline

_QUERY = """
SELECT wanted.organization_id, wanted.route_id, b.currency, p.id, p.effective_at,
    p.input_per_million, p.cached_input_per_million, p.output_per_million
FROM unnest(%s::text[], %s::text[]) AS wanted (organization_id, route_id)
JOIN organizations o ON o.id = wanted.organization_id
JOIN price_books b ON b.id = o.price_book_id
LEFT JOIN prices p ON p.price_book_id = b.id AND p.route_id = wanted.route_id
"""


def load_prices(
    cursor: psycopg.Cursor[Any], wanted: Iterable[tuple[str, str]]
) -> dict[str, OrganizationPrices]:
    """Return prices by organization id for ``wanted`` pairs of organization and route id.

    An organization that is unknown or follows no price book is not in the result.
    """
    pairs = sorted(set(wanted))
    cursor.execute(_QUERY, ([pair[0] for pair in pairs], [pair[1] for pair in pairs]))
    currencies: dict[str, str] = {}
    prices: dict[str, dict[str, list[PriceTerms]]] = {}
    for organization_id, route_id, currency, price_id, effective_at, *amounts in cursor:
        currencies[organization_id] = currency
        timelines = prices.setdefault(organization_id, {})
        if price_id is not None:
            terms = PriceTerms(price_id, currency, effective_at, *amounts)
            timelines.setdefault(route_id, []).append(terms)
    return {
        organization_id: OrganizationPrices(
            currency=currency,
            timelines={
                route_id: PriceTimeline(terms)
                for route_id, terms in prices[organization_id].items()
            },
        )
        for organization_id, currency in currencies.items()
    }
