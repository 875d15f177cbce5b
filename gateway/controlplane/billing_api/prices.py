"""Setting prices by the names that people use: a route's public name, a price book's id or name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from sqlalchemy.ext.asyncio import AsyncSession

from billing.pricing import repository as pricing
from billing.pricing.models import Price, PriceBook
from gateway.controlplane.catalog import repository as catalog
from gateway.controlplane.changes import record_change
from gateway.controlplane.database import ReadSession, WriteSession
from gateway.controlplane.errors import ConflictError, InvalidRequestError, NotFoundError
from gateway.controlplane.rate_waiting import record_price

DEFAULT_PRICE_BOOK = "default"
# Per million tokens; outside it somebody probably meant another unit.
_PLAUSIBLE = (Decimal("0.0001"), Decimal(1000))


@dataclass(frozen=True, slots=True)
class NamedPrice:
    """A price with the names of what it belongs to."""

    price: Price
    price_book: PriceBook
    route: str  # the id where the route is gone


async def set_price(
    session: WriteSession,
    *,
    route: str,
    price_book: str | None,
    input_per_million: Decimal,
    cached_input_per_million: Decimal | None,
    output_per_million: Decimal,
    effective_at: datetime | None,
    now: datetime,
) -> NamedPrice:
    """Add a dated price; earlier ones stay as they are. Amounts per million tokens."""
    priced_route = await catalog.get_route(session, route)
    book = await choose_price_book(session, price_book)
    try:
        price = await pricing.set_price(
            session,
            pricing.NewPrice(
                price_book_id=book.id,
                route_id=priced_route.id,
                input_per_million=input_per_million,
                cached_input_per_million=cached_input_per_million,
                output_per_million=output_per_million,
                effective_at=effective_at,
            ),
            now=now,
        )
    except pricing.PriceExistsError as error:
        raise ConflictError(_sentence(error), param="effective_at") from error
    except pricing.PricingError as error:
        raise InvalidRequestError(_sentence(error), param="effective_at") from error
    record_change(session)
    record_price(session)
    return NamedPrice(price=price, price_book=book, route=priced_route.name)


async def choose_price_book(session: AsyncSession, id_or_name: str | None) -> PriceBook:
    """Return the book asked for; else the only one there is, else the one named "default"."""
    if id_or_name is not None:
        book = await pricing.find_price_book(session, id_or_name)
        if book is None:
            raise NotFoundError("There is no such price book.", param="price_book")
        return book
    books = await pricing.list_price_books(session)
    if len(books) == 1:
        return books[0]
    for book in books:
        if book.name == DEFAULT_PRICE_BOOK:
            return book
    raise InvalidRequestError(
        "price_book is required: there is not exactly one price book.", param="price_book"
    )


async def list_current(
    session: ReadSession, *, at: datetime, route: str | None, price_book: str | None
) -> list[NamedPrice]:
    """Return the price that holds at ``at`` of every route (or one) in every book (or one)."""
    route_id, book_id = await _find_ids(session, route, price_book)
    found = await pricing.list_current_prices(session, at=at, price_book_id=book_id)
    wanted = [price for price in found if route_id in (None, price.route_id)]
    return await add_names(session, wanted)


async def list_history(
    session: ReadSession, *, route: str | None, price_book: str | None
) -> list[NamedPrice]:
    """Return every price ever set (of one route, in one book), newest effective first."""
    route_id, book_id = await _find_ids(session, route, price_book)
    prices = await pricing.list_price_history(session, route_id=route_id, price_book_id=book_id)
    return await add_names(session, prices)


async def _find_ids(
    session: ReadSession, route: str | None, price_book: str | None
) -> tuple[str | None, str | None]:
    route_id = None if route is None else (await catalog.get_route(session, route)).id
    book = None if price_book is None else await choose_price_book(session, price_book)
    return route_id, None if book is None else book.id


def warn_of_unit(amounts: Sequence[Decimal | None]) -> list[str]:
    """Return a warning for amounts that look like prices per token or per thousand tokens."""
    low, high = _PLAUSIBLE
    if all(amount is None or amount == 0 or low <= amount <= high for amount in amounts):
        return []
    return [f"Prices are per million tokens; one below {low} or above {high} is unusual."]


async def add_names(session: ReadSession, prices: Sequence[Price]) -> list[NamedPrice]:
    """Return the prices with the names of their routes and books."""
    books = {book.id: book for book in await pricing.list_price_books(session)}
    names = {route.id: route.name for route in await catalog.list_routes(session)}
    return [
        NamedPrice(
            price=price,
            price_book=books[price.price_book_id],
            route=names.get(price.route_id, price.route_id),
        )
        for price in prices
    ]


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."
