"""Requests and answers about prices, journals and dead letters. Amounts travel as strings."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict

from billing.money import format_amount, parse_price
from billing.pricing.models import PriceBook
from gateway.controlplane.billing_api.prices import NamedPrice, warn_of_unit
from gateway.controlplane.text_fields import ModelName, Name
from gateway.controlplane.time_fields import Moment


def parse_amount(value: Any) -> Decimal:
    """Return the price in a JSON value; raise ValueError for what cannot be kept exactly.

    Whole numbers are exact in JSON; 0.1 has gone through a float by the time we see it.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, float):
        # pydantic turns a ValueError into a refusal; a TypeError would be our failure.
        raise ValueError(  # noqa: TRY004
            'must be a string, like "0.15", so that it stays exact'
        )
    return parse_price(value)


Amount = Annotated[Decimal, BeforeValidator(parse_amount)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewPriceRequest(_Request):
    """Amounts per million tokens.

    ``cached_input_per_million`` null or absent: cached input costs what input costs; "0": it is
    free. Without ``effective_at``: from now on. Without ``price_book``: the only one there is, or
    the one named "default".
    """

    route: ModelName
    input_per_million: Amount
    output_per_million: Amount
    cached_input_per_million: Amount | None = None
    price_book: Name | None = None
    effective_at: Moment | None = None


class NewPriceBookRequest(_Request):
    """``currency`` is an ISO 4217 code."""

    name: Name
    currency: Name


class PriceBookAnswer(BaseModel):
    """A price book."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    name: str
    currency: str
    created_at: datetime

    @classmethod
    def of(cls, book: PriceBook) -> Self:
        """Return the answer about ``book``."""
        return cls.model_validate(book)


class PriceAnswer(BaseModel):
    """One dated price; amounts per million tokens."""

    id: str
    price_book_id: str
    price_book: str
    currency: str
    route_id: str
    route: str
    effective_at: datetime
    input_per_million: str
    cached_input_per_million: str | None
    output_per_million: str
    created_at: datetime

    @classmethod
    def of(cls, named: NamedPrice) -> Self:
        """Return the answer about a price."""
        return cls(**_fields_of(named))


class NewPriceAnswer(PriceAnswer):
    """A price just set, with what is odd about it."""

    warnings: list[str]

    @classmethod
    def set_now(cls, named: NamedPrice) -> Self:
        """Return the answer about a price just set."""
        price = named.price
        amounts = (
            price.input_per_million,
            price.cached_input_per_million,
            price.output_per_million,
        )
        return cls(**_fields_of(named), warnings=warn_of_unit(amounts))


def _fields_of(named: NamedPrice) -> dict[str, Any]:
    price, book = named.price, named.price_book
    cached = price.cached_input_per_million
    return {
        "id": price.id,
        "price_book_id": book.id,
        "price_book": book.name,
        "currency": book.currency,
        "route_id": price.route_id,
        "route": named.route,
        "effective_at": price.effective_at,
        "input_per_million": format_amount(price.input_per_million),
        "cached_input_per_million": None if cached is None else format_amount(cached),
        "output_per_million": format_amount(price.output_per_million),
        "created_at": price.created_at,
    }


class JournalAnswer(BaseModel):
    """Counts of one journal."""

    model_config = ConfigDict(from_attributes=True)

    journal_id: str
    admitted: int
    settled: int
    voided: int
    open: int
    duplicates: int
    set_aside: int
    corrupt_records: int
    updated_at: datetime | None
    finished_at: datetime | None


class JournalsAnswer(BaseModel):
    """Counts over all journals: ``admitted = settled + voided + open + duplicates + set_aside``.

    ``dead_letters`` counts those that are not resolved, ``dead_letters_by_reason`` splits them.
    """

    admitted: int
    settled: int
    voided: int
    open: int
    duplicates: int
    set_aside: int
    corrupt_records: int
    journals: list[JournalAnswer]
    dead_letters: int
    dead_letters_by_reason: dict[str, int]


class DeadLetterAnswer(BaseModel):
    """Something that could not be charged or stored."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    reason: str
    event_id: str | None
    event_started_at: datetime | None
    organization_id: str | None
    project_id: str | None
    route: str | None
    journal_id: str
    segment: int | None
    byte_offset: int | None
    detail: str
    payload: str | None
    created_at: datetime
    resolved_at: datetime | None


class RetryAnswer(BaseModel):
    """What a retry of unpriced events came to."""

    model_config = ConfigDict(from_attributes=True)

    rated: int
    still_unpriced: int
