"""Setting prices: dated, never changed, never rewriting what was in effect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from billing.clock import utc_now
from billing.db import make_async_engine, make_session_factory
from billing.money import InvalidAmountError
from billing.pricing.repository import (
    BackdatedPriceError,
    NewPrice,
    PriceBookExistsError,
    PriceBookNotFoundError,
    PriceExistsError,
    create_price_book,
    find_price_book,
    list_current_prices,
    list_price_books,
    list_price_history,
    set_price,
)
from tests.factories.billing_rows import PRICE_BOOK, add_price_book

NOW = utc_now()


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    add_price_book(database_url)
    made = make_async_engine(database_url)
    yield made
    await made.dispose()


@pytest.fixture
async def session(engine: AsyncEngine) -> AsyncIterator[AsyncSession]:
    async with make_session_factory(engine)() as opened:
        yield opened


def new_price(amount: str = "1", *, days: float | None = None, route: str = "route_1") -> NewPrice:
    return NewPrice(
        price_book_id=PRICE_BOOK,
        route_id=route,
        input_per_million=Decimal(amount),
        output_per_million=Decimal(amount),
        effective_at=None if days is None else NOW + timedelta(days=days),
    )


async def test_a_later_price_takes_over_at_its_time(session: AsyncSession) -> None:
    await set_price(session, new_price("1"), now=NOW)
    await set_price(session, new_price("2", days=1), now=NOW)
    await set_price(session, new_price("7", route="route_2"), now=NOW)

    async def current(days: float) -> list[Decimal]:
        prices = await list_current_prices(session, at=NOW + timedelta(days=days))
        return [price.input_per_million for price in prices]

    assert await current(-1) == []
    assert await current(0) == [1, 7]
    assert await current(2) == [2, 7]
    history = await list_price_history(session, route_id="route_1")
    assert [price.input_per_million for price in history] == [2, 1]


async def test_two_prices_at_one_moment_are_refused(session: AsyncSession) -> None:
    await set_price(session, new_price("1", days=1), now=NOW)
    with pytest.raises(PriceExistsError):
        await set_price(session, new_price("2", days=1), now=NOW)


async def test_the_past_can_be_priced_only_where_it_was_not(session: AsyncSession) -> None:
    await set_price(session, new_price("1"), now=NOW)
    await set_price(session, new_price("2", days=-2), now=NOW)  # nothing held before
    with pytest.raises(BackdatedPriceError):
        await set_price(session, new_price("3", days=-1), now=NOW)
    await set_price(session, new_price("3", days=-3), now=NOW)


async def test_what_cannot_be_set_says_why(session: AsyncSession) -> None:
    with pytest.raises(PriceBookNotFoundError):
        await set_price(session, NewPrice("nix", "r", Decimal(1), Decimal(1)), now=NOW)
    for amount in ("-1", "NaN", "0.0000000000001"):
        with pytest.raises(InvalidAmountError):
            await set_price(session, new_price(amount), now=NOW)


async def test_zero_and_unset_cached_prices_stay_apart(session: AsyncSession) -> None:
    unset = await set_price(session, new_price("1"), now=NOW)
    free = await set_price(
        session,
        NewPrice(PRICE_BOOK, "route_2", Decimal(1), Decimal(1), Decimal(0)),
        now=NOW,
    )
    await session.commit()
    await session.refresh(unset)
    await session.refresh(free)
    assert unset.cached_input_per_million is None
    assert free.cached_input_per_million == 0


async def test_price_books_have_names_of_their_own(session: AsyncSession) -> None:
    book = await create_price_book(session, name="Partners", currency="USD", now=NOW)
    with pytest.raises(PriceBookExistsError):
        await create_price_book(session, name="Partners", currency="EUR", now=NOW)
    with pytest.raises(InvalidAmountError):
        await create_price_book(session, name="Other", currency="dollars", now=NOW)
    assert await find_price_book(session, "Partners") is book
    assert await find_price_book(session, book.id) is book
    assert await find_price_book(session, "nobody's") is None
    assert [found.name for found in await list_price_books(session)] == [
        "Partners",
        "name of pbk_1",
    ]


async def test_of_two_setters_of_one_moment_one_wins(engine: AsyncEngine) -> None:
    factory = make_session_factory(engine)

    async def try_setting() -> str:
        async with factory() as session:
            try:
                await set_price(session, new_price("1", days=1), now=NOW)
            except PriceExistsError:
                return "refused"
            await session.commit()
            return "set"

    assert sorted(await asyncio.gather(try_setting(), try_setting())) == ["refused", "set"]
