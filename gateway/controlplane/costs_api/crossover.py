"""Serverless or dedicated, over the ledger's own hours, over HTTP.

The answer about a route is what ``forebay report crossover --json`` prints for the same hours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter

from billing.costing.errors import CostingError
from billing.costing.measured_capacity import CapacityProfile
from billing.costing.plain_report import plain_crossover, to_plain
from billing.costing.price_list import ListPrice, check_names
from billing.costing.report_routes import (
    RouteReport,
    list_busy_hours,
    report_route,
    report_routes,
    sum_apart,
)
from billing.money import InvalidAmountError, format_amount
from billing.pricing import repository as pricing
from gateway.controlplane.billing_api import prices as price_names
from gateway.controlplane.context import ControlPlaneDep
from gateway.controlplane.costs_api.capacity_profiles import get_profile
from gateway.controlplane.costs_api.crossover_schemas import CrossoverRequest
from gateway.controlplane.costs_api.hours_span import choose_hours
from gateway.controlplane.costs_api.load import LedgerHours, read_hours
from gateway.controlplane.database import ReadSession
from gateway.controlplane.errors import InvalidRequestError, NotFoundError

router = APIRouter()
_T = TypeVar("_T")
_NO_CURRENCY = "an unnamed currency"


@router.post("/crossover")
async def show_crossover(
    wanted: CrossoverRequest, control_plane: ControlPlaneDep
) -> dict[str, Any]:
    """Return what serverless, dedicated GPUs and both cost, where they cross, and which to choose.

    Changes nothing: it is a POST because of the size of the question.
    """
    span = choose_hours(wanted.from_at, wanted.to_at, now=control_plane.clock())
    async with control_plane.database.read() as session:
        found = await read_hours(
            session,
            span,
            organization_id=wanted.organization_id,
            project_id=wanted.project_id,
        )
        prices = await _choose_prices(session, wanted, control_plane)
        name = wanted.capacity.stored_profile
        stored = None if name is None else await get_profile(session, name)
    if not found.hours:
        raise InvalidRequestError(
            "Nothing was used in these hours; the one that is not over does not count yet.",
            param="from",
        )
    if wanted.route is not None and all(hour.route != wanted.route for hour in found.hours):
        raise NotFoundError("This route was not used in these hours.", param="route")
    # Seconds of arithmetic where fleets are large: not in the event loop, and one at a time.
    return await control_plane.report_turns.compute(
        lambda: _refusing(lambda: _answer(wanted, found, prices, stored))
    )


async def _choose_prices(
    session: ReadSession, wanted: CrossoverRequest, control_plane: ControlPlaneDep
) -> list[ListPrice]:
    if wanted.price_book is None:
        return _refusing(wanted.to_prices)
    if wanted.prices:
        raise InvalidRequestError("Give a price book, or prices: not both.", param="prices")
    book = await price_names.choose_price_book(session, wanted.price_book)
    now = control_plane.clock()
    current = await pricing.list_current_prices(session, at=now, price_book_id=book.id)
    if not current:
        raise InvalidRequestError("The price book has no price in effect.", param="price_book")
    return [
        ListPrice(
            name=f"{named.price_book.name}/{named.route}",
            currency=named.price_book.currency,
            input_per_million=named.price.input_per_million,
            cached_input_per_million=named.price.cached_input_per_million,
            output_per_million=named.price.output_per_million,
            route=named.route,
        )
        for named in await price_names.add_names(session, current)
    ]


def _refusing(compute: Callable[[], _T]) -> _T:
    """Turn what makes no sense into a refusal with the sentence that says why."""
    try:
        return compute()
    except (CostingError, InvalidAmountError) as error:
        text = str(error)
        raise InvalidRequestError(f"{text[:1].upper()}{text[1:]}.") from error


def _answer(
    wanted: CrossoverRequest,
    found: LedgerHours,
    prices: list[ListPrice],
    stored: CapacityProfile | None,
) -> dict[str, Any]:
    check_names(prices)
    load = found.load.grown(wanted.growth)
    terms, told = wanted.to_terms(), wanted.to_capacity(stored)
    if wanted.route is None:
        reports = report_routes(load, prices, terms, told)
    else:
        reports = [report_route(load, wanted.route, prices, terms, told)]
    apart = sum_apart(reports) if wanted.route is None else None
    if wanted.price_book is not None:
        serverless = "price_book"
    else:
        serverless = "prices" if prices else "charged"
    return {
        "first_hour_at": found.first_hour_at.isoformat(),
        "last_hour_at": found.last_hour_at.isoformat(),
        "currency": reports[0].currency,
        "gpu": wanted.gpu,
        "gpu_price_per_hour": format_amount(wanted.gpu_price_per_hour),
        "growth": format_amount(wanted.growth),
        "serverless": serverless,
        "apart_per_month": None if apart is None else to_plain(apart),
        "data": [
            _plain_section(report, is_first=index == 0) for index, report in enumerate(reports)
        ],
    }


def _plain_section(found: RouteReport, *, is_first: bool) -> dict[str, Any]:
    """Return one route's answer; the first has its hours too, to be drawn."""
    told: dict[str, Any] = {
        "route": found.route,
        "problem": found.problem,
        "ledger_notes": list(found.load_notes),
    }
    if found.report is None or found.question is None:
        return told
    if is_first:
        told["hours"] = to_plain(list_busy_hours(found.question))
    currency = found.currency or _NO_CURRENCY
    return told | plain_crossover(found.report, found.sensitivity, currency)
