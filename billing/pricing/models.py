"""Tables of the price books. Prices are dated and never changed or removed (triggers see to it)."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from sqlalchemy import CheckConstraint, DateTime, ForeignKey, Numeric, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from billing.db import Base


def _price_check(column: str) -> str:
    # NaN sorts above Infinity in PostgreSQL, so "< Infinity" refuses both. 12 decimals: PRICE_SCALE
    # of billing.money.
    return f"{column} >= 0 AND {column} < 'Infinity' AND scale({column}) <= 12"


class PriceBook(Base):
    """A dated set of prices in one currency; every organization follows one."""

    __tablename__ = "price_books"
    __table_args__ = (CheckConstraint("currency ~ '^[A-Z]{3}$'", name="currency_iso"),)

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    currency: Mapped[str] = mapped_column(Text)  # ISO 4217
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class Price(Base):
    """What a route costs per million tokens from ``effective_at`` until the next price's.

    ``cached_input_per_million`` of None means that cached input costs what input costs; 0 means
    that it is free.
    """

    __tablename__ = "prices"
    __table_args__ = (
        UniqueConstraint("price_book_id", "route_id", "effective_at"),
        CheckConstraint(_price_check("input_per_million"), name="input_exact"),
        CheckConstraint(_price_check("cached_input_per_million"), name="cached_input_exact"),
        CheckConstraint(_price_check("output_per_million"), name="output_exact"),
    )

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    price_book_id: Mapped[str] = mapped_column(Text, ForeignKey("price_books.id"))
    route_id: Mapped[str] = mapped_column(Text)
    effective_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    input_per_million: Mapped[Decimal] = mapped_column(Numeric)
    cached_input_per_million: Mapped[Decimal | None] = mapped_column(Numeric)
    output_per_million: Mapped[Decimal] = mapped_column(Numeric)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
