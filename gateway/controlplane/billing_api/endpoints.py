"""Prices, journals and dead letters over HTTP."""

from __future__ import annotations

import asyncio
from typing import Annotated

import psycopg
from fastapi import APIRouter, Query

from billing.charging.dead_letters import count_dead_letters
from billing.charging.dead_letters import list_dead_letters as find_dead_letters
from billing.charging.retry_unpriced import retry_unpriced
from billing.money import InvalidAmountError
from billing.pricing import repository as pricing
from billing.usage.journal_counts import read_journal_counts, total_counts
from gateway.controlplane.billing_api import prices
from gateway.controlplane.billing_api.schemas import (
    DeadLetterAnswer,
    JournalAnswer,
    JournalsAnswer,
    NewPriceAnswer,
    NewPriceBookRequest,
    NewPriceRequest,
    PriceAnswer,
    PriceBookAnswer,
    RetryAnswer,
)
from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep, WriteSessionDep
from gateway.controlplane.errors import ConflictError, InvalidRequestError, UnavailableError
from gateway.controlplane.listing import Listing
from gateway.controlplane.text_fields import IdQuery

router = APIRouter()


@router.get("/price-books")
async def list_price_books(session: ReadSessionDep) -> Listing[PriceBookAnswer]:
    """Return all price books by name."""
    found = await pricing.list_price_books(session)
    return Listing(data=[PriceBookAnswer.of(book) for book in found])


@router.post("/price-books", status_code=201)
async def create_price_book(
    wanted: NewPriceBookRequest, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> PriceBookAnswer:
    """Add an empty price book."""
    try:
        book = await pricing.create_price_book(
            session, name=wanted.name, currency=wanted.currency, now=control_plane.clock()
        )
    except pricing.PriceBookExistsError as error:
        raise ConflictError("There is a price book with this name.", param="name") from error
    except InvalidAmountError as error:
        raise InvalidRequestError(
            "currency must be three capital letters, like EUR.", param="currency"
        ) from error
    return PriceBookAnswer.of(book)


@router.get("/prices")
async def list_prices(
    session: ReadSessionDep,
    control_plane: ControlPlaneDep,
    route: IdQuery = None,
    price_book: IdQuery = None,
) -> Listing[PriceAnswer]:
    """Return the prices that hold now (of one route, in one book)."""
    found = await prices.list_current(
        session, at=control_plane.clock(), route=route, price_book=price_book
    )
    return Listing(data=[PriceAnswer.of(named) for named in found])


@router.get("/prices/history")
async def list_price_history(
    session: ReadSessionDep, route: IdQuery = None, price_book: IdQuery = None
) -> Listing[PriceAnswer]:
    """Return every price ever set, newest effective first."""
    found = await prices.list_history(session, route=route, price_book=price_book)
    return Listing(data=[PriceAnswer.of(named) for named in found])


@router.post("/prices", status_code=201)
async def set_price(
    wanted: NewPriceRequest, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> NewPriceAnswer:
    """Set a price from a moment on; what was rated before keeps its price."""
    named = await prices.set_price(
        session,
        route=wanted.route,
        price_book=wanted.price_book,
        input_per_million=wanted.input_per_million,
        cached_input_per_million=wanted.cached_input_per_million,
        output_per_million=wanted.output_per_million,
        effective_at=wanted.effective_at,
        now=control_plane.clock(),
    )
    return NewPriceAnswer.set_now(named)


@router.get("/journals")
async def show_journals(session: ReadSessionDep) -> JournalsAnswer:
    """Return what was admitted and what became of it, by journal and together."""
    journals = await read_journal_counts(session)
    total = total_counts(journals)
    letters = await count_dead_letters(session)
    return JournalsAnswer(
        admitted=total.admitted,
        settled=total.settled,
        voided=total.voided,
        open=total.open,
        duplicates=total.duplicates,
        set_aside=total.set_aside,
        corrupt_records=total.corrupt_records,
        journals=[JournalAnswer.model_validate(counts) for counts in journals],
        dead_letters=sum(letters.values()),
        dead_letters_by_reason=letters,
    )


@router.get("/dead-letters")
async def list_dead_letters(
    session: ReadSessionDep,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    include_resolved: bool = False,
) -> Listing[DeadLetterAnswer]:
    """Return the newest dead letters."""
    found = await find_dead_letters(session, limit=limit, include_resolved=include_resolved)
    return Listing(data=[DeadLetterAnswer.model_validate(letter) for letter in found])


@router.post("/dead-letters/retry")
async def retry_dead_letters(control_plane: ControlPlaneDep) -> RetryAnswer:
    """Rate the events that had no price, where one fits by now."""
    try:
        outcome = await asyncio.to_thread(
            retry_unpriced, control_plane.config.database_url, clock=control_plane.clock
        )
    except psycopg.OperationalError as error:
        raise UnavailableError("The database cannot be reached; try again shortly.") from error
    return RetryAnswer.model_validate(outcome)
