"""Price books and prices, for the control plane. The caller's session decides when to commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from billing.ids import new_id
from billing.money import check_currency, parse_price
from billing.pricing.models import Price, PriceBook


class PricingError(Exception):
    """A price or price book cannot be set as asked; the message says why."""


class PriceBookNotFoundError(PricingError):
    """There is no such price book."""


class PriceBookExistsError(PricingError):
    """A price book of that name exists."""


class PriceExistsError(PricingError):
    """The route has a price that takes effect at that very moment; prices are never changed."""


class BackdatedPriceError(PricingError):
    """The price would change what was in effect in the past; history is never rewritten."""


@dataclass(frozen=True, slots=True)
class NewPrice:
    """A price to be set; amounts per million tokens, see :class:`billing.pricing.models.Price`."""

    price_book_id: str
    route_id: str
    input_per_million: Decimal
    output_per_million: Decimal
    cached_input_per_million: Decimal | None = None
    effective_at: datetime | None = None  # None: from now on


async def create_price_book(
    session: AsyncSession, *, name: str, currency: str, now: datetime
) -> PriceBook:
    """Add an empty price book.

    Raises :class:`PriceBookExistsError`, and :class:`billing.money.InvalidAmountError` for a
    currency that is no ISO 4217 code.
    """
    book = PriceBook(id=new_id("pbk"), name=name, currency=check_currency(currency), created_at=now)
    try:
        async with session.begin_nested():
            session.add(book)
    except IntegrityError as error:
        raise PriceBookExistsError(f"a price book named {name!r} exists") from error
    return book


async def list_price_books(session: AsyncSession) -> Sequence[PriceBook]:
    """Return all price books by name."""
    return (await session.scalars(select(PriceBook).order_by(PriceBook.name))).all()


async def find_price_book(session: AsyncSession, id_or_name: str) -> PriceBook | None:
    """Return the price book with this id, else with this name, else None."""
    book = await session.get(PriceBook, id_or_name)
    if book is not None:
        return book
    return await session.scalar(select(PriceBook).where(PriceBook.name == id_or_name))


async def set_price(session: AsyncSession, new_price: NewPrice, *, now: datetime) -> Price:
    """Add a dated price; the earlier ones stay as they are and events keep what they were rated with.

    A moment in the past is accepted only where the route had no price then (it prices what lies in
    dead letters). Raises :class:`PriceBookNotFoundError`, :class:`PriceExistsError`,
    :class:`BackdatedPriceError`, :class:`billing.money.InvalidAmountError`.
    """
    # The book's row lock puts two setters of the same moment one after the other.
    book = await session.scalar(
        select(PriceBook).where(PriceBook.id == new_price.price_book_id).with_for_update()
    )
    if book is None:
        raise PriceBookNotFoundError(f"there is no price book {new_price.price_book_id!r}")
    effective_at = new_price.effective_at or now
    if effective_at.tzinfo is None:
        raise PricingError("the time a price takes effect needs its zone")
    timeline = (Price.price_book_id == book.id) & (Price.route_id == new_price.route_id)
    earlier = await session.scalar(
        select(Price.effective_at)
        .where(timeline, Price.effective_at <= effective_at)
        .order_by(Price.effective_at.desc())
        .limit(1)
    )
    if earlier == effective_at:
        raise PriceExistsError(
            f"the route has a price from {effective_at.isoformat()} on; choose another moment"
        )
    if earlier is not None and effective_at < now:
        raise BackdatedPriceError(
            "the route already had a price at that moment; a new one can only begin now or later"
        )
    price = Price(
        id=new_id("price"),
        price_book_id=book.id,
        route_id=new_price.route_id,
        effective_at=effective_at,
        input_per_million=parse_price(new_price.input_per_million),
        cached_input_per_million=(
            None
            if new_price.cached_input_per_million is None
            else parse_price(new_price.cached_input_per_million)
        ),
        output_per_million=parse_price(new_price.output_per_million),
        created_at=now,
    )
    session.add(price)
    await session.flush()
    return price


async def list_current_prices(
    session: AsyncSession, *, at: datetime, price_book_id: str | None = None
) -> Sequence[Price]:
    """Return the price in effect at ``at`` of every route in every (or one) book."""
    latest = (
        select(
            Price.price_book_id,
            Price.route_id,
            func.max(Price.effective_at).label("effective_at"),
        )
        .where(Price.effective_at <= at)
        .group_by(Price.price_book_id, Price.route_id)
        .subquery()
    )
    statement = (
        select(Price)
        .join(
            latest,
            (Price.price_book_id == latest.c.price_book_id)
            & (Price.route_id == latest.c.route_id)
            & (Price.effective_at == latest.c.effective_at),
        )
        .order_by(Price.price_book_id, Price.route_id)
    )
    if price_book_id is not None:
        statement = statement.where(Price.price_book_id == price_book_id)
    return (await session.scalars(statement)).all()


async def list_price_history(
    session: AsyncSession,
    *,
    price_book_id: str | None = None,
    route_id: str | None = None,
) -> Sequence[Price]:
    """Return every price ever set (of one book, of one route), newest effective first.

    Without limits on book and route this is also what a Snapshot is built from.
    """
    statement = select(Price).order_by(
        Price.effective_at.desc(), Price.price_book_id, Price.route_id
    )
    if price_book_id is not None:
        statement = statement.where(Price.price_book_id == price_book_id)
    if route_id is not None:
        statement = statement.where(Price.route_id == route_id)
    return (await session.scalars(statement)).all()
