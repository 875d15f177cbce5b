"""One question about a record as a whole, and about each of its routes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from billing.costing.crossover import CrossoverQuestion, CrossoverReport, report_crossover
from billing.costing.dedicated import SECONDS_PER_HOUR, DedicatedTerms
from billing.costing.errors import CostingError
from billing.costing.load_notes import list_load_notes
from billing.costing.price_list import ListPrice, get_currency
from billing.costing.question import ToldCapacity, make_question
from billing.costing.recorded_load import RecordedLoad
from billing.costing.route_prices import price_load
from billing.costing.sensitivity import SensitivityRow, find_sensitivity
from billing.costing.wide_decimal import divide, wide


@dataclass(frozen=True, slots=True)
class RouteReport:
    """The answer about one route, or about all together (None); without one, ``problem`` says why."""

    route: str | None
    question: CrossoverQuestion | None
    report: CrossoverReport | None
    sensitivity: tuple[SensitivityRow, ...] = ()
    problem: str | None = None
    load_notes: tuple[str, ...] = ()  # on the recorded hours
    currency: str | None = None  # of all amounts; None: not told, or charges in several


@dataclass(frozen=True, slots=True)
class BusyHour:
    """One hour's load; ``replicas`` are those that it keeps busy at full capacity."""

    hour_at: datetime
    tokens: Decimal
    replicas: Decimal | None  # None where no capacity meets the latency target


def report_route(
    load: RecordedLoad,
    route: str | None,
    prices: Sequence[ListPrice],
    terms: DedicatedTerms,
    told: ToldCapacity,
) -> RouteReport:
    """Return all about one route, or about all together. Raises :class:`CostingError`."""
    question = make_question(price_load(load, route, prices), terms, told)
    report = report_crossover(question)
    sensitivity = tuple(find_sensitivity(question))
    notes = list_load_notes(load, route)
    currency = _find_currency(load, route, prices)
    return RouteReport(route, question, report, sensitivity, load_notes=notes, currency=currency)


def report_routes(
    load: RecordedLoad,
    prices: Sequence[ListPrice],
    terms: DedicatedTerms,
    told: ToldCapacity,
) -> list[RouteReport]:
    """Return the answer about all together, then that about each route, by name.

    Routes are told without bands and sensitivity: :func:`report_route` has these. Raises
    :class:`CostingError` for terms and capacities that make no sense for any of them.
    """
    told.check()
    terms.check()
    if prices:
        get_currency(prices)
    return [_try_route(load, route, prices, terms, told) for route in (None, *load.routes)]


def sum_apart(reports: Sequence[RouteReport]) -> Decimal | None:
    """Return what a month costs with each route on GPUs of its own, each at its best choice.

    None where a route has no answer, there is no route, or they are of several currencies.
    """
    if len({one.currency for one in reports if one.route is not None}) > 1:
        return None
    months = []
    for one in reports:
        if one.route is None:
            continue
        if one.report is None:
            return None
        comparison = one.report.comparison
        months.append(comparison.get(comparison.best).per_month)
    known = [month for month in months if month is not None]
    return _sum(known) if known else None


@wide
def list_busy_hours(question: CrossoverQuestion) -> list[BusyHour]:
    """Return the load hour by hour."""
    capacity = question.capacity
    return [
        BusyHour(
            hour.hour_at,
            hour.tokens.total,
            None
            if capacity is None
            else divide(capacity.busy_seconds(hour.tokens), SECONDS_PER_HOUR),
        )
        for hour in question.profile.hours
    ]


def _try_route(
    load: RecordedLoad,
    route: str | None,
    prices: Sequence[ListPrice],
    terms: DedicatedTerms,
    told: ToldCapacity,
) -> RouteReport:
    question: CrossoverQuestion | None
    report: CrossoverReport | None
    try:
        if route is None:
            return report_route(load, None, prices, terms, told)
        question = make_question(price_load(load, route, prices), terms, told)
        report = report_crossover(replace(question, resamples=0))
        problem = None
    except CostingError as error:
        question, report, problem = None, None, str(error)
    return RouteReport(
        route,
        question,
        report,
        problem=problem,
        load_notes=list_load_notes(load, route),
        currency=_find_currency(load, route, prices),
    )


def _find_currency(
    load: RecordedLoad, route: str | None, prices: Sequence[ListPrice]
) -> str | None:
    return get_currency(prices) if prices else load.find_currency(route)


@wide
def _sum(amounts: Sequence[Decimal]) -> Decimal:
    return sum(amounts, Decimal(0))
