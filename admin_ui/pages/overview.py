"""The first page: spend, usage, latest requests, engines, metering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from admin_ui.breakdown import break_down
from admin_ui.control_client import ControlClient
from admin_ui.control_records import Usage
from admin_ui.daily import TOKEN_SERIES, daily_rows, spend_chart, tokens_chart
from admin_ui.date_range import (
    DEFAULT_DAYS,
    PRESET_DAYS,
    DateRange,
    RangeRefusedError,
    last_days,
    parse_range,
)
from admin_ui.formatting import find_share
from admin_ui.overview_figures import LATEST_REQUESTS, OverviewFigures, load_overview
from admin_ui.rendering import Renderer
from admin_ui.require_session import get_signed_in
from admin_ui.section import Section

REFRESH_SECONDS = 15
_LONGEST_ID = 100


@dataclass(frozen=True)
class OverviewPage:
    """Loads the figures for the chosen days and project, and lays them out."""

    control: ControlClient
    renderer: Renderer
    clock: Callable[[], datetime]
    public_base_url: str

    async def show(self, request: Request) -> Response:
        """GET /: the page; a range that makes no sense is explained, and the default shown."""
        signed_in = get_signed_in(request)
        now = self.clock()
        days, range_problem = _chosen_days(request, now.date())
        project_id = request.query_params.get("project", "")[:_LONGEST_ID] or None
        figures = await load_overview(self.control, signed_in.token, days, project_id)
        return self.renderer.page(
            "overview.html",
            status=200 if range_problem is None else 400,
            member=signed_in.member,
            csrf_token=signed_in.csrf_token,
            now=now,
            refresh_seconds=REFRESH_SECONDS,
            most_requests=LATEST_REQUESTS,
            days=days,
            range_problem=range_problem,
            presets=[(count, _preset_link(count, project_id)) for count in PRESET_DAYS],
            project_id=project_id,
            figures=figures,
            public_base_url=self.public_base_url,
            admin_base_url=str(request.base_url).rstrip("/"),
            **_usage_views(figures, days),
        )


def _chosen_days(request: Request, today: date) -> tuple[DateRange, str | None]:
    try:
        return parse_range(request.query_params, today), None
    except RangeRefusedError as error:
        return last_days(DEFAULT_DAYS, today), str(error)


def _preset_link(count: int, project_id: str | None) -> str:
    query = {"days": str(count)} | ({} if project_id is None else {"project": project_id})
    return "/?" + urlencode(query)


def _usage_views(figures: OverviewFigures, days: DateRange) -> dict[str, Any]:
    """Return the template's names for what is derived from the usage reports."""
    usage = figures.by_day.value
    views: dict[str, Any] = {
        "currency": None,
        "total": None,
        "cached_share": None,
        "daily": [],
        "spend": None,
        "tokens": None,
        "token_series": TOKEN_SERIES,
        "breakdowns": [
            ("project", "By project", _rows(figures.by_project)),
            ("key", "By API key", _rows(figures.by_key)),
            ("route", "By model", _rows(figures.by_route)),
        ],
    }
    if usage is not None:
        rows = daily_rows(usage, days)
        views |= {
            "currency": usage.currency,
            "total": usage.total,
            "cached_share": find_share(usage.total.cached_input_tokens, usage.total.input_tokens),
            "daily": list(reversed(rows)),
            "spend": spend_chart(rows, usage.currency),
            "tokens": tokens_chart(rows),
        }
    return views


def _rows(section: Section[Usage]) -> Section[Any]:
    if section.value is None:
        return Section(None, section.problem)
    return Section(break_down(section.value))
