"""What traffic costs: serverless or dedicated, how it was served, how charges spread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from admin_ui.control_client import ControlClient
from admin_ui.control_errors import ControlError
from admin_ui.cost_charts import CHOICES, crossing_chart, fleet_chart, load_chart
from admin_ui.cost_records import Crossover
from admin_ui.crossover_form import (
    PERCENTILES,
    CrossoverForm,
    FormProblemError,
    read_crossover_form,
)
from admin_ui.date_range import DateRange, RangeRefusedError, last_days, parse_range
from admin_ui.formatting import find_share
from admin_ui.rendering import Renderer
from admin_ui.require_session import SignedIn, get_signed_in
from admin_ui.section import Section, load_section
from admin_ui.serving_figures import (
    GROUPINGS,
    ServingChoice,
    ServingFigures,
    load_serving,
    read_serving_choice,
)

DEFAULT_DAYS = 30


@dataclass(frozen=True)
class _Outcome:
    """What became of the form: a report, or the sentence that says why there is none."""

    report: Crossover | None = None
    problem: str | None = None
    status: int = 200


@dataclass(frozen=True)
class CostsPage:
    """The form and its report, beside what the same days' requests tell."""

    control: ControlClient
    renderer: Renderer
    clock: Callable[[], datetime]

    async def show(self, request: Request) -> Response:
        """GET /costs: the form's fields are the address, so that a report can be kept and sent."""
        signed_in = get_signed_in(request)
        now = self.clock()
        days, problem = _chosen_days(request, now.date())
        form = read_crossover_form(request.query_params)
        choice = read_serving_choice(request.query_params)
        token = signed_in.token
        outcome, routes, books, profiles, serving, spread = await asyncio.gather(
            self._report(signed_in, form, days, problem),
            load_section(self.control.list_routes(token)),
            load_section(self.control.list_price_books(token)),
            load_section(self.control.list_capacity_profiles(token)),
            self._serving(signed_in, form, choice, days),
            load_section(self.control.get_charge_spread(token, _query(form, days))),
        )
        return self.renderer.page(
            "costs.html",
            status=outcome.status,
            member=signed_in.member,
            csrf_token=signed_in.csrf_token,
            now=now,
            days=days,
            form=form.fields,
            percentiles=PERCENTILES,
            problem=outcome.problem,
            report=outcome.report,
            routes=routes,
            books=books,
            profiles=profiles,
            serving=serving,
            choice=choice,
            groupings=GROUPINGS,
            spread=spread,
            choices=CHOICES,
            find_share=find_share,
            **_views(outcome.report, form),
        )

    async def _report(
        self, signed_in: SignedIn, form: CrossoverForm, days: DateRange, problem: str | None
    ) -> _Outcome:
        if problem is not None:
            return _Outcome(problem=problem, status=400)
        if not form.is_asked:
            return _Outcome()
        try:
            question = form.make_question() | _span(days)
            return _Outcome(await self.control.get_crossover(signed_in.token, question))
        except FormProblemError as error:
            return _Outcome(problem=str(error), status=400)
        except ControlError as error:
            return _Outcome(problem=str(error), status=error.page_status)

    async def _serving(
        self, signed_in: SignedIn, form: CrossoverForm, choice: ServingChoice, days: DateRange
    ) -> ServingFigures:
        try:
            targets = form.list_targets()
        except FormProblemError as error:
            return ServingFigures(
                Section(None, str(error)), Section(None, None), Section(None, None), ()
            )
        return await load_serving(
            self.control, signed_in.token, choice, _query(form, days), targets
        )


def _chosen_days(request: Request, today: date) -> tuple[DateRange, str | None]:
    query = request.query_params
    usual = last_days(DEFAULT_DAYS, today)
    try:
        return (parse_range(query, today) if query.get("from") or query.get("to") else usual), None
    except RangeRefusedError as error:
        return usual, f"{error} Showing the last {DEFAULT_DAYS} days."


def _span(days: DateRange) -> dict[str, str]:
    return {"from": days.from_at.isoformat(), "to": days.to_at.isoformat()}


def _query(form: CrossoverForm, days: DateRange) -> dict[str, str]:
    route = {"route": form.fields["route"]} if form.fields["route"] else {}
    return _span(days) | route


def _views(report: Crossover | None, form: CrossoverForm) -> dict[str, Any]:
    """Return the template's names for what is drawn of the first section."""
    if report is None or report.data[0].comparison is None:
        return {"crossing": None, "load": None, "fleets": None}
    first = report.data[0]
    currency = first.currency or ""
    return {
        "crossing": crossing_chart(first, currency, form.max_utilization),
        "load": load_chart(first),
        "fleets": fleet_chart(first, currency),
    }
