"""A database with one organization, price book and priced route."""

from __future__ import annotations

import pytest

from tests.factories.billing_rows import add_organization, add_price, add_price_book

# Input, output and cached input; per million.
SMALL = ("0.15", "0.6", "0.075")
LARGE = ("2.5", "10", None)
ASKED = ("1.000000000001", "4", "0")


@pytest.fixture
def billing_url(database_url: str) -> str:
    add_price_book(database_url)
    add_organization(database_url)
    add_price(database_url)
    return database_url


@pytest.fixture
def priced_url(billing_url: str) -> str:
    """A database in which the routes "small", "large" and "asked" have prices."""
    for name, price in (("small", SMALL), ("large", LARGE), ("asked", ASKED)):
        add_price(billing_url, *price, route_id=f"route_{name}")
    return billing_url
