"""Fetching all that the overview shows, at once, each section standing on its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

from admin_ui.control_client import ControlClient
from admin_ui.control_records import EngineRow, Journals, Project, RequestRow, Route, Usage
from admin_ui.date_range import DateRange
from admin_ui.section import Section, load_section

LATEST_REQUESTS = 50


@dataclass(frozen=True)
class OverviewFigures:
    """The overview's sections."""

    projects: Section[list[Project]]
    routes: Section[list[Route]]
    by_day: Section[Usage]
    by_project: Section[Usage]
    by_key: Section[Usage]
    by_route: Section[Usage]
    requests: Section[list[RequestRow]]
    engines: Section[list[EngineRow]]
    journals: Section[Journals]


async def load_overview(
    control: ControlClient, token: str, days: DateRange, project_id: str | None
) -> OverviewFigures:
    """Ask for every section side by side; one that fails leaves the others whole."""

    def usage(group_by: str) -> Awaitable[Section[Usage]]:
        return load_section(
            control.get_usage(
                token,
                group_by=group_by,
                from_at=days.from_at,
                to_at=days.to_at,
                project_id=project_id,
            )
        )

    first = asyncio.gather(
        load_section(control.list_projects(token)),
        load_section(control.list_routes(token)),
        load_section(control.list_requests(token, limit=LATEST_REQUESTS, project_id=project_id)),
        load_section(control.list_engines(token)),
        load_section(control.get_journals(token)),
    )
    second = asyncio.gather(usage("day"), usage("project"), usage("key"), usage("route"))
    projects, routes, requests, engines, journals = await first
    by_day, by_project, by_key, by_route = await second
    return OverviewFigures(
        projects=projects,
        routes=routes,
        by_day=by_day,
        by_project=by_project,
        by_key=by_key,
        by_route=by_route,
        requests=requests,
        engines=engines,
        journals=journals,
    )
