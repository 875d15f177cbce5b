"""A database with one organization, price book and priced route."""

from __future__ import annotations

import pytest

from tests.factories.billing_rows import add_organization, add_price, add_price_book


@pytest.fixture
def billing_url(database_url: str) -> str:
    add_price_book(database_url)
    add_organization(database_url)
    add_price(database_url)
    return database_url
